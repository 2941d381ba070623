/** The hardware, the decisions of each run with reasons, and measured compared with predicted memory. */
import { advice, block, card, facts, meter, quiet, small } from "../dom.mjs";
import { hardware, isNumber, mebibytes, percent } from "../format.mjs";
import { dataTable, text } from "../table.mjs";

export const device = (store) => [
  machine(store.state.device),
  store.streams.map((name) => decided(name, store.stream(name))),
];

const machine = (found) =>
  card(
    "This machine",
    found && quiet(hardware(found)),
    found
      ? facts(
          found.facts.map(({ what, value, reason }) => [what, reason ? `${value} (${reason})` : value]),
          "facts single",
        )
      : advice("No device report yet", "landfall pipeline", "writes it"),
  );
const COLUMNS = [text("what", "Decision"), text("value", "Value"), text("reason", "Reason")];

function decided(name, { title, run_id: run, decisions: items = [], memory }) {
  if (!run)
    return card(
      title,
      null,
      advice("No run has recorded its decisions yet", `landfall train ${name}`, "starts one"),
    );
  return card(
    title,
    quiet(`Run ${run}`),
    items.length > 0
      ? dataTable({ id: `decided-${name}`, label: `Decisions, ${title}`, columns: COLUMNS, items })
      : quiet("This run has recorded no decision yet."),
    block("Memory", memory ? bars(memory) : quiet("This run recorded no memory.")),
  );
}

function bars({ limit_mb: limit, forecast_mb: forecast, measured_mb: peak }) {
  const tone = peak > limit ? "bad" : "good";
  const known = [
    ["Limit", limit, "idle"],
    ["Predicted peak", forecast, "busy"],
    ["Measured peak", peak, tone],
  ].filter(([, value]) => isNumber(value));
  const whole = Math.max(...known.map(([, value]) => value));
  const bar = ([term, value, look]) => [term, [meter(term, value / whole, look), small(mebibytes(value))]];
  return [
    facts(known.map(bar)),
    isNumber(forecast) &&
      isNumber(peak) &&
      quiet(`The measured peak is ${percent(peak / forecast)} of the predicted peak.`),
  ];
}
