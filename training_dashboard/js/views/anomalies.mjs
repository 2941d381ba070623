/** What scoring found in each stream: the false alarms to expect, the scores over time, and the events. */

import { append, code, el, facts, replace } from "../dom.mjs";
import { MISSING, count, duration, figure, percent, plural, score, time } from "../format.mjs";
import { sortedTable } from "../table.mjs";

function card(name, stream, dialog) {
  return el("article", { class: "card", "data-stream": name, "aria-labelledby": `anomalies-${name}` },
    el("header", {},
      el("div", {}, el("h3", { id: `anomalies-${name}` }, stream.title), el("p", { class: "quiet" }, stream.subject))),
    stream.scores ? found(stream, stream.scores, dialog) : empty(stream));
}

const empty = ({ checkpoint }) => el("p", { class: "quiet" }, "Nothing scored yet: ",
  code(checkpoint?.present ? "make score" : "make validate"), " finds the events in the test files.");

function found(stream, summary, dialog) {
  const { threshold } = summary;
  const detections = stream.detections ?? { events: [], total: summary.events };
  const statement = detections.false_alarms;
  return [
    statement && el("p", { class: "statement" }, statement.charAt(0).toUpperCase() + statement.slice(1), "."),
    summary.timeline && timeline(stream.title, summary),
    events(stream.title, detections, dialog),
    block("Against the labels", detections.detection ? figures(detections.detection) : quiet(UNLABELLED)),
    block("Scores", facts([
      ["Scored", `${plural(summary.scores, "score")} in ${plural(summary.recordings, "recording")}`],
      ["Found", `${plural(summary.alarms, "alarm")} in ${plural(summary.events, "event")}`],
      ["Threshold", threshold && [figure(threshold.value), el("small", {}, thresholdText(threshold))]],
    ])),
  ];
}

const UNLABELLED = "No labels, so no detection figures: put a label file beside the data to judge the alarms.";

const quiet = (...text) => el("p", { class: "quiet" }, text);

const block = (title, ...children) => el("div", { class: "block" }, el("h4", {}, title), children);

const address = (picture) => `data/${encodeURIComponent(picture)}`;

function timeline(title, summary) {
  const alt = `Anomaly score of ${title} over time with the alarm threshold; ${plural(summary.events, "event")} found.`;
  return el("figure", {}, picture(summary.timeline, alt),
    el("figcaption", { class: "quiet" }, `Scores over time, ${time(summary.scored_at)}`));
}

const picture = (name, alt) =>
  el("a", { href: address(name) }, el("img", { src: address(name), loading: "lazy", alt }));

const thresholdText = (threshold) => [
  threshold.method,
  threshold.calibration_scores && `from ${plural(threshold.calibration_scores, "normal score")}`,
  threshold.false_alarm_rate !== null && `${percent(threshold.false_alarm_rate)} false alarms intended`,
].filter(Boolean).join(", ");

function figures(detection) {
  const tiles = [
    ["AUROC", score(detection.auroc), "chance 0.5"],
    ["Average precision", score(detection.average_precision), `chance ${score(detection.prevalence)}`],
    ["F1", score(detection.f1), null],
    ["Precision", score(detection.precision), null],
    ["Recall", score(detection.recall), null],
    ["False alarms", percent(detection.false_alarm_rate), "of normal scores"],
    ["Event precision", percent(detection.event_precision), "of events"],
    ["Event recall", percent(detection.event_recall), "of anomalies"],
  ];
  return el("dl", { class: "tiles" }, tiles.filter(([, value]) => value !== MISSING).map(([term, value, note]) =>
    el("div", {}, el("dt", {}, term), el("dd", {}, value, note && el("small", {}, note)))));
}

// ------------------------------------------------------------------------------------------------------------- events
function events(title, { events: worst, total }, dialog) {
  if (total === 0) return quiet("No event: nothing rose above the threshold for long enough.");
  if (worst.length === 0) return quiet("The list of events is missing: ", code("make score"), " writes it.");
  const all = plural(total, "event");
  const table = sortedTable({
    name: "events", label: `Events of ${title}`, columns: COLUMNS, items: worst, sortedBy: "severity",
    line: (event) => ({ "data-event": event.id, onclick: () => show(dialog, title, event) }),
  });
  return block(worst.length < total ? `The ${count(worst.length)} worst of ${all}` : all,
    quiet("Severity is the highest score over the threshold. An event opens with a click or Enter."), table);
}

const COLUMNS = [
  {
    id: "start", title: "Begins", key: (event) => event.start ?? event.id,
    // The button serves the keyboard; its click rises to the row, which serves the mouse.
    cell: (event) => [
      el("button", { type: "button", class: "link", "aria-haspopup": "dialog" }, begin(event)),
      el("small", {}, [event.recording, event.picture && "with picture"].filter(Boolean).join(", ")),
    ],
  },
  {
    id: "severity", title: "Severity", numeric: true, descending: true,
    key: (event) => event.severity, cell: (event) => severity(event),
  },
  {
    id: "duration", title: "Lasts", numeric: true, descending: true,
    key: (event) => event.duration_seconds, cell: (event) => lasting(event),
  },
  {
    id: "channels", title: "Mostly in", key: (event) => event.top_channels[0]?.name ?? null,
    cell: (event) => event.top_channels.map(({ name, share }) => `${name} ${percent(share)}`).join(", "),
  },
];

/** The recording's own clock, which knows no zone. */
const clock = (iso) => iso.slice(0, 19).replace("T", " ");

const begin = (event) => (event.start ? clock(event.start) : `second ${figure(event.start_seconds)}`);

const lasting = (event) => (event.duration_seconds === 0 ? "a moment" : duration(event.duration_seconds));

const severity = (event) => `${event.severity < 10 ? event.severity.toFixed(1) : count(event.severity)} ×`;

function show(dialog, title, event) {
  const alt = `What the sensors showed in event ${event.id}, what the model expected, and the error.`;
  replace(dialog,
    el("header", {}, el("h3", { id: "event-title" }, `${title}, event ${event.id}`),
      el("button", { type: "button", onclick: () => dialog.close() }, "Close")),
    el("p", {}, `${event.sentence}.`),
    event.picture
      ? el("figure", {}, picture(event.picture, alt))
      : quiet("Only the worst events of a scoring have a picture."),
    quiet(event.recording));
  dialog.showModal();
}

export default {
  id: "anomalies",
  title: "Anomalies",
  mount(body, { state }) {
    const dialog = el("dialog", { class: "card", "aria-labelledby": "event-title" });
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    const streams = Object.entries(state.streams ?? {});
    append(body, [streams.map(([name, stream]) => card(name, stream, dialog)), dialog]);
  },
};
