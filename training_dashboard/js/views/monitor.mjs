/** The state of `landfall watch`: the newest events, and the newest score of each file. */
import { advice, badge, block, card, el, fill, light, quiet, wordOf } from "../dom.mjs";
import { MISSING, clock, count, figure, plural, severity, time } from "../format.mjs";
import { dataTable, number, text } from "../table.mjs";

export function monitor(store, route, signal) {
  const node = el("div");
  const none = advice("No monitor has run yet", "landfall watch STREAM", "scores new rows in real time");
  const draw = () => {
    const monitors = Object.values(store.monitors);
    fill(node, monitors.length > 0 ? monitors.map((each) => shown(store, each)) : none);
  };
  store.addEventListener("monitor", draw, { signal });
  draw();
  return node;
}

function shown(store, { stream, state, updated_at: at, threshold, events, files }) {
  const open = events.filter((event) => event.state === "open");
  return card(
    wordOf(store.stream(stream).subject),
    open.length > 0 ? light("open events") : badge(state),
    quiet(
      `Monitor ${state}. ${plural(open.length, "open event")}. Threshold ${figure(threshold)}. Last update ${time(at)}.`,
    ),
    block(
      "Events, open ones first",
      events.length === 0
        ? quiet("None yet.")
        : dataTable({
            id: `events-${stream}`,
            label: `Events of ${stream}`,
            columns: EVENT,
            items: [...open, ...events.filter((event) => event.state !== "open")],
          }),
    ),
    block(
      "Files",
      dataTable({ id: `files-${stream}`, label: `Files of ${stream}`, columns: FILE, items: files }),
    ),
  );
}

const date = (iso) => (iso ? clock(iso) : MISSING);

const EVENT = [
  text("recording", "Recording"),
  text(
    "state",
    "State",
    ({ state }) => state,
    ({ state }) => badge(state),
  ),
  text(
    "start",
    "Begins",
    ({ start }) => start,
    ({ start }) => date(start),
  ),
  number("severity", "Severity", (event) => event.severity, severity),
  text("sentence", "Event"),
];

const FILE = [
  text("recording", "Recording"),
  text(
    "time",
    "Time of the newest score",
    ({ time: newest }) => newest,
    ({ time: newest }) => date(newest),
  ),
  number("score", "Newest score", ({ score }) => score, figure),
  number("rows", "Scores since the start", ({ rows }) => rows, count),
  number("alarms", "Alarms since the start", ({ alarms }) => alarms, count),
];
