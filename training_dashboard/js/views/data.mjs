/** The quality report of each data file, and maps of missing and repeated values. */
import { heatMap } from "../chart.mjs";
import { advice, badge, card, choice, el, facts, fill, finding, fold, path, quiet, small } from "../dom.mjs";
import { figure, percent, plural } from "../format.mjs";
import { extent } from "../plots.mjs";
import { dataTable, number, text } from "../table.mjs";

const KINDS = { missing: "missing values", stuck: "repeated values" };

export const data = (store, route) =>
  Promise.all(
    store.streams.map(async (name) => {
      const { title, subject, quality, quality_file: file } = store.stream(name);
      if (!quality)
        return card(
          title,
          quiet(subject),
          advice("No file checked yet", "landfall quality", "checks them all"),
        );
      const { files: all, kept, dropped, warned } = quality;
      const report = file && (await store.document(file));
      return card(
        title,
        quiet(subject),
        el("p", {}, `${kept} of ${plural(all, "file")} kept, ${dropped} dropped, ${warned} with warnings`),
        // Older exports contain only the worst findings.
        report
          ? [files(name, title, report.files), map(name, title, report.files, route)]
          : findings(quality.worst ?? []),
      );
    }),
  );

const files = (name, title, items) =>
  dataTable({
    id: `files-${name}`,
    label: `Files of ${title}`,
    items: [...items].sort((one, other) => urgency(other) - urgency(one)),
    columns: [
      text(
        "file",
        "File",
        (file) => file.file_id,
        (file) => path(file.file_id),
      ),
      text(
        "decision",
        "Decision",
        (file) => file.decision,
        (file) => badge(file.decision),
      ),
      number("hard", "Hard fails", (file) => file.hard_fails.length),
      number("warnings", "Warnings", (file) => file.warnings.length),
      text(
        "findings",
        "Findings",
        (file) =>
          messages(file)
            .map(({ message }) => message)
            .join("; "),
        (file) => messages(file).length > 0 && fold(messages(file)[0].message, findings(messages(file))),
      ),
      text(
        "metrics",
        "Metrics",
        ({ metrics = {} }) =>
          Object.entries(metrics)
            .map((pair) => pair.join(" "))
            .join("; "),
        ({ metrics = {} }) =>
          fold(
            plural(Object.keys(metrics).length, "figure"),
            facts(Object.entries(metrics).map(([key, value]) => [key, figure(value)])),
          ),
      ),
    ],
  });

/** Dropped files are first, then those with warnings. */
const urgency = (file) => (file.decision === "drop" ? Infinity : file.warnings.length);

const messages = ({ hard_fails: hard, warnings }) => [
  ...hard.map((found) => ({ ...found, severity: "drop" })),
  ...warnings.map((found) => ({ ...found, severity: "warn" })),
];

const findings = (found) =>
  el(
    "ul",
    { class: "findings" },
    found.map(({ severity, message, rule, file_id: file }) =>
      finding(severity === "warn" ? "warning" : severity, message || rule, file && small(file)),
    ),
  );

function map(name, title, all, route) {
  const channels = [
    ...new Set(all.flatMap((file) => file.channels.map((channel) => channel.name))),
  ].reverse();
  const [frame, found] = [el("div"), all.map((file) => new Map(file.channels.map((one) => [one.name, one])))];
  const show = (kind) => {
    const words = KINDS[kind];
    const z = channels.map((channel) => found.map((file) => file.get(channel)?.[kind] ?? null));
    const worst = extent(z)[1];
    fill(
      frame,
      worst > 0
        ? heatMap({
            title: `Share of ${words}`,
            of: title,
            summary: `Share of ${words} by channel and file, at most ${percent(worst)}`,
            z,
            range: [0, worst],
            what: "share",
            say: percent,
            height: 100 + 21 * channels.length,
            x: { label: "file", names: all.map(({ file_id: id }) => id.split("/").at(-1)) },
            y: { label: "channel", names: channels },
          }).node
        : quiet(`No channel has ${words}.`),
    );
  };
  const chosen = Object.hasOwn(KINDS, route.get("map", "")) ? route.get("map") : "missing";
  const choose = (kind) => {
    route.note({ map: kind });
    show(kind);
  };
  show(chosen);
  return (
    channels.length > 0 && [choice(`map-${name}`, "Map of", Object.entries(KINDS), chosen, choose), frame]
  );
}
