/** Results of scoring: scores with threshold and events, and each event with measured and predicted values. */
import { lineChart } from "../chart.mjs";
import { advice, block, card, el, facts, fill, path, picker, prose, quiet, small } from "../dom.mjs";
import {
  count,
  duration,
  falsePerDay,
  faults,
  isNumber,
  percent,
  plain,
  plural,
  score,
  severity,
  share,
  time,
} from "../format.mjs";
import { annotations, stateOf } from "../annotation.mjs";
import { about, begin } from "../event.mjs";
import { go, href } from "../route.mjs";
import { dataTable, number, text } from "../table.mjs";

/** Maximum number of scores that are fetched for a zoomed view. */
const CLOSE_UP = 100_000;
const SEVERITIES = ["1", "2", "5", "10", "100"];
const MATCHED =
  "A fault is found if an event starts or has its peak in it, or at most scoring.event_gap + 1 scores before it; " +
  "other events are false. By chance: the same events at random times.";

export async function anomalies(store, route) {
  const stream = store.streams.find((name) => name === route.get("stream")) ?? store.streams[0];
  const { title, subject, scores, detections, series, checkpoint } = store.stream(stream);
  const titles = store.streams.map((name) => [name, store.stream(name).title]);
  const streams = picker("stream", "Stream", titles, stream, (name) => go("anomalies", { stream: name }));
  const command = checkpoint ? "landfall score" : "landfall pipeline";
  if (!scores)
    return [streams, card(title, quiet(subject), advice("Nothing scored yet", command, "finds the events"))];
  const {
    events = [],
    total = scores.events,
    false_alarms: alarms,
    annotations: notes = [],
  } = detections ?? {};
  const event = events.find(({ id }) => String(id) === route.get("event"));
  return [
    streams,
    card(
      title,
      quiet(subject),
      series
        ? timeline(store, stream, await store.document(series), route.get("recording"), event, {
            events,
            notes,
            scores,
          })
        : advice("The scores over time were not exported", "landfall export", "writes them"),
      alarms && block("False alarms", el("p", {}, prose(`${alarms}.`))),
    ),
    event &&
      Object.assign(
        card(`Event ${event.id}`, quiet(begin(event)), await about(store, stream, event, scores)),
        {
          id: "aim",
        },
      ),
    card(
      "Events",
      quiet("Severity is the highest score divided by the threshold."),
      table(route, stream, events, total),
    ),
    card("Figures", quiet(`Scored ${time(scores.scored_at)}`), figures(scores)),
  ];
}

function timeline(store, stream, { recordings, threshold }, wanted, event, { events, notes, scores }) {
  const selected = wanted ?? (event ?? events[0])?.recording;
  const recording = recordings.find(({ name }) => name === selected) ?? recordings[0];
  if (!recording) return quiet("No recording was scored.");
  const { name, start, labels = [] } = recording;
  const origin = start ? Date.parse(`${start.slice(0, 23)}Z`) / 1000 : 0;
  const mine = notes.filter((note) => note.recording === name);
  const mark = (from, to, more) => ({ from: origin + from, to: origin + to, ...more });
  const spec = {
    title: `Anomaly score, ${name}`,
    height: 280,
    y: { label: "score", isLog: true },
    summary: `${plural(recording.points, "score")} of ${name}, threshold ${plain(threshold)}`,
    x: {
      label: start ? `recording's own clock, ${start.slice(0, 10)}` : "time (s)",
      isClock: Boolean(start),
    },
    spans: [
      ...labels.map(([from, to]) => mark(from, to, { colour: "idle", label: "labelled anomaly" })),
      ...mine
        .filter(({ label }) => label)
        .map(({ start_seconds: from, end_seconds: to, label, comment }) =>
          mark(from, to, {
            colour: "curve-4",
            name: label,
            label: [label, comment].filter(Boolean).join(": "),
          }),
        ),
      ...events
        .filter((one) => one.recording === name)
        .map((one) =>
          mark(one.start_seconds, one.end_seconds, {
            colour: one === event ? "busy" : "bad",
            label: one.sentence,
            onclick: () => go("anomalies", { stream, event: one.id }),
          }),
        ),
    ],
  };
  const coarse = segments(recording, origin);
  const now = threshold === null ? [] : [{ y: threshold, colour: "bad", label: "threshold" }];
  let [fine, other, chosen, visible] = [[], [], [], null];
  const shown = () => ({
    ...spec,
    spans: [...spec.spans, ...chosen],
    curves: [...coarse.map((curve) => ({ ...curve, isFaint: fine.length > 0 })), ...fine],
    lines: [...now, ...other],
  });
  const zoom = closeUp(store, recording, origin, (found) => {
    fine = found;
    chart.update(shown());
  });
  spec.onzoom = (from, to) => {
    visible = [from, to];
    return zoom(from, to);
  };
  const chart = lineChart(shown());
  const tryOut = (value) => {
    other = value === null ? [] : [{ y: value, colour: "busy", label: "what if" }];
    chart.update(shown());
  };
  const chooseSpan = ([from, to]) => {
    chosen = from <= to ? [{ from, to, colour: "busy", label: "new annotation" }] : [];
    chart.update(shown());
  };
  const names = recordings.map((one) => [one.name, `${one.name} (${plural(one.events.length, "event")})`]);
  const choose = (recording) => go("anomalies", { stream, recording });
  return [
    picker("recording", "Recording", names, name, choose),
    chart.node,
    quiet(
      "Red: events (click to open); blue: the event below; grey: labelled anomalies; purple: annotations. " +
        "Drag to zoom, double-click to reset.",
    ),
    annotations(store, stream, {
      recording: name,
      items: mine,
      axis: { origin, isClock: Boolean(start) },
      visible: () => visible ?? [origin, origin],
      show: chooseSpan,
    }),
    whatIf(scores, tryOut),
  ];
}

/** A slider over other thresholds: the number of events in the scored data, and false events per day. */
function whatIf({ what_if: steps = [], threshold }, show) {
  const now = steps.findIndex((step) => step.threshold === threshold?.value);
  if (now < 0) return null;
  const result = el("output", { for: "what-if" });
  const slider = el("input", {
    type: "range",
    id: "what-if",
    min: 0,
    max: steps.length - 1,
    value: now,
    oninput: () => {
      const step = steps[slider.valueAsNumber];
      describe(step);
      show(step === steps[now] ? null : step.threshold);
    },
  });
  const describe = (step) => {
    const times =
      step === steps[now] ? "in use" : `${severity(step.threshold / threshold.value)} the one in use`;
    slider.setAttribute("aria-valuetext", `threshold ${plain(step.threshold)}`);
    result.textContent =
      `Threshold ${plain(step.threshold)} (${times}): ${plural(step.events, "event")} in the scored data; ` +
      `in normal operation: ${falsePerDay(step)}.`;
  };
  describe(steps[now]);
  return block("Try another threshold", el("label", { class: "control" }, "Threshold", slider), result);
}

/** The minimum and maximum score of each segment; one curve if they are equal. */
function segments({ t, low, high }, origin) {
  const curve = { x: t.map((second) => origin + second), colour: "curve-1", width: 1.5 };
  if (low.every((value, at) => value === high[at])) return [{ ...curve, name: "score", y: high }];
  return [
    { ...curve, name: "highest", y: high, pairsWith: 1 },
    { ...curve, name: "lowest", y: low },
  ];
}

/** Fetches every score of the visible range if they are few enough; `show` gets a curve of them, or none. */
function closeUp(store, { details = [] }, origin, show) {
  let shown = "";
  return async (from, to) => {
    const parts = details.filter(
      ({ from_s: first, to_s: last }) => origin + last >= from && origin + first <= to,
    );
    const points = parts.reduce((sum, part) => sum + part.points, 0);
    const near = parts.length < details.length && points <= CLOSE_UP ? parts.map(({ file }) => file) : [];
    if (near.join() === shown) return;
    shown = near.join();
    const found = await Promise.all(near.map((file) => store.document(file)));
    const x = found.flatMap(({ t }) => t.map((second) => origin + second));
    const curve = {
      name: "every score",
      x,
      y: found.flatMap((part) => part.score),
      colour: "curve-1",
      width: 1.5,
    };
    if (near.join() === shown) show(near.length > 0 ? [curve] : []);
  };
}

function table(route, stream, all, total) {
  if (total === 0) return quiet("No event: the score was never above the threshold for long enough.");
  if (all.length === 0) return advice("The list of events is missing", "landfall score", "writes it");
  const columns = [
    text(
      "start",
      "Begins",
      (event) => event.start ?? event.start_seconds,
      (event) => [
        el("a", { href: href("anomalies", { stream, event: event.id }) }, begin(event)),
        small(path(event.recording)),
      ],
    ),
    number("severity", "Severity", (event) => event.severity, severity),
    number(
      "duration",
      "Duration",
      (one) => one.duration_seconds,
      (span) => (span === 0 ? "a moment" : duration(span)),
    ),
    text("channels", "Top channels", sharesOf, ({ channels = [] }) =>
      channels.map((channel) =>
        el(
          "div",
          { class: "channel" },
          `${channel.name} `,
          el("span", { class: "unbroken" }, share(channel.share)),
        ),
      ),
    ),
    text("state", "State", stateOf),
    text("comment", "Comment", ({ annotation }) => annotation?.comment ?? ""),
    text("signals", "Signals", ({ detail }) => (detail ? "recorded" : "not recorded")),
  ];
  return [
    all.length < total && quiet(`The ${count(all.length)} worst of ${plural(total, "event")}.`),
    filtered(route, all, (items, pickers) =>
      dataTable({ id: "events", label: "Events", columns, items, sortedBy: "severity", pickers }),
    ),
  ];
}

/** The events that the pickers select, with the selection in the address; `draw` shows them, with the pickers. */
function filtered(route, all, draw) {
  const [names, states] = [all.flatMap(channelsOf), all.map(stateOf)].map((each) =>
    [...new Set(each)].sort(),
  );
  const filters = [
    [
      "severity",
      "Severity from",
      SEVERITIES,
      (event, least) => event.severity >= Number(least),
      (least) => `${least} ×`,
    ],
    ["channel", "Channel", ["", ...names], (event, name) => channelsOf(event).includes(name)],
    ["state", "State", ["", ...states], (event, state) => stateOf(event) === state],
  ];
  const node = el("div");
  const show = () => {
    const chosen = (id) => route.get(id, "");
    const items = all.filter((event) =>
      filters.every(([id, , , holds]) => !chosen(id) || holds(event, chosen(id))),
    );
    const pickers = filters.map(([id, title, values, , say = (value) => value || "any"]) =>
      picker(
        id,
        title,
        values.map((value) => [value, say(value)]),
        chosen(id),
        (value) => {
          route.note({ [id]: value || [] });
          show();
        },
      ),
    );
    fill(node, draw(items, pickers));
  };
  show();
  return node;
}

const sharesOf = ({ channels = [] }) =>
  channels.map(({ name, share: part }) => `${name} ${share(part)}`).join(", ");
const channelsOf = ({ channels = [] }) => channels.map(({ name }) => name);

function figures({ threshold, scores, recordings, alarms, events, detection: found }) {
  const { calibration_scores: calibration, false_alarm_rate: meant } = threshold ?? {};
  const basis = `from ${plural(calibration, "normal score")}; limit: ${percent(meant)} false alarms`;
  const shares =
    found &&
    [
      ["AUROC", "auroc", "chance 0.5"],
      ["Average precision", "average_precision", `chance ${score(found.prevalence)}`],
      ["F1", "f1"],
      ["Precision", "precision"],
      ["Recall", "recall"],
      ["False alarms", "false_alarm_rate", "of normal scores", percent],
    ]
      .filter(([, key]) => isNumber(found[key]))
      .map(([term, key, note, say = score]) => [term, say(found[key]), note]);
  const tiles =
    found && [...faults(found), ...shares].map(([term, value, note]) => [term, [value, note && small(note)]]);
  return [
    facts([
      ["Scored", `${plural(scores, "score")} in ${plural(recordings, "recording")}`],
      ["Found", `${plural(alarms, "alarm")} in ${plural(events, "event")}`],
      ["Threshold", threshold && [plain(threshold.value), small(basis)]],
    ]),
    block(
      "Against the labels",
      found
        ? [facts(tiles, "tiles"), quiet(MATCHED)]
        : quiet("No labels to compare with: put a label file next to the data to evaluate the alarms."),
    ),
  ];
}
