/** The details of one event: its score with the threshold, and measured and predicted values, on one time axis. */
import { annotation } from "./annotation.mjs";
import { heatMap, lineChart } from "./chart.mjs";
import { advice, block, code, el, facts, meter, quiet, small } from "./dom.mjs";
import { COMPONENTS, clock, duration, figure, isNumber, rareness, severity, share } from "./format.mjs";
import { extent } from "./plots.mjs";

/** Width of the vertical axis of every chart of an event, so that their times are aligned. */
const AXIS_WIDTH = 76;

export const begin = (event) =>
  event.start ? clock(event.start) : `second ${event.start_seconds.toFixed(2)}`;
const end = (event) => (event.end ? clock(event.end) : `second ${event.end_seconds.toFixed(2)}`);

export async function about(store, stream, event, scores) {
  const detail = event.detail ? await store.document(event.detail) : {};
  const { channels = [], scalograms = [], envelopes = [], score, component, component_share: most } = detail;
  const shareOf = ({ name, share: part }) => [
    name,
    [meter(`Share of ${name}`, part, "bad"), small(share(part))],
  ];
  const axis = clockOf(event);
  return [
    el("p", {}, `${event.sentence}.`),
    facts([
      ["Recording", event.recording],
      ["Onset", begin(event)],
      ["End", `${end(event)}, after ${duration(event.duration_seconds)}`],
      ["Peak", `${severity(event.severity)} the threshold`],
      ["Raised by", component && `${COMPONENTS[component]}, ${share(most)} of the score`],
      ["In normal operation", rareness(scores, event.severity)],
    ]),
    annotation(store, stream, event),
    block("Channels by their share of the error", facts((event.channels ?? []).map(shareOf))),
    el(
      "div",
      { class: "stack" },
      score && scoreChart(event, score, axis, detail),
      channels.map((channel) => signal(event, channel, axis, detail)),
    ),
    envelopes.length > 0 && block("Envelope spectra", envelopeCharts(envelopes, detail.bearing ?? [])),
    scalograms.map((map) => scalogram(map, detail.expected_by)),
    scalograms.length > 0 &&
      quiet("0 dB is an amplitude of one standard deviation of the axis in the training data."),
    scalograms.length > 0 &&
      component === "charts" &&
      detail.expected_by === "model" &&
      quiet(
        "The control charts raised this event. They compare statistics of the vibration and predict no scalogram, " +
          "so the prediction of the model is shown.",
      ),
    !event.detail && advice("Signals are stored for the worst events only", "landfall score", "writes those"),
  ];
}

/** The time axis of an event: time stamps of the recording, otherwise its seconds. `at` maps seconds to the axis. */
function clockOf({ start, start_seconds: seconds }) {
  if (!start) return { at: (second) => second, x: { label: "time (s)" } };
  const origin = Date.parse(`${start.slice(0, 23)}Z`) / 1000 - seconds;
  return { at: (second) => origin + second, x: { label: "recording's own clock", isClock: true } };
}

/** Common properties of all charts of an event: its span, with start and end, and the time axis. window: the seconds of a
 * vibration that the scalograms show. */
function shared(event, { at, x }, window) {
  const [from, to] = [at(event.start_seconds), at(event.end_seconds)];
  const scored = window
    ? [{ from: at(window[0]), to: at(window[1]), colour: "idle", label: "window with the highest score" }]
    : [];
  return {
    x,
    isWide: true,
    syncWith: `event ${event.id}`,
    spans: [{ from, to, colour: "bad", label: "event" }, ...scored],
    lines: [
      { x: from, colour: "bad", label: "onset" },
      ...(to > from ? [{ x: to, colour: "bad", label: "end", isBelow: true }] : []),
    ],
  };
}

function scoreChart(event, { t, score, threshold }, axis, { window_s: window }) {
  const common = shared(event, axis, window);
  return lineChart({
    ...common,
    title: "Score",
    summary: `Score around the event, threshold ${figure(threshold)}`,
    y: { label: "score", isLog: true, size: AXIS_WIDTH },
    curves: [{ name: "score", x: t.map(axis.at), y: score, colour: "curve-1" }],
    lines: [...common.lines, { y: threshold, colour: "bad", label: "threshold" }],
  }).node;
}

function signal(event, { name, t, seen, expected }, axis, { expected_by: by, window_s: window }) {
  const [x, what] = [t.map(axis.at), by ? `expected by ${COMPONENTS[by]}` : "expected"];
  return lineChart({
    ...shared(event, axis, window),
    title: name,
    summary: `${name} as measured and as ${what}`,
    y: { label: name, size: AXIS_WIDTH },
    // The prediction for vibration is a scalogram, not a curve.
    curves: [
      { name: "measured", x, y: seen, colour: "curve-1" },
      { name: what, x, y: expected, colour: "curve-2", dash: [6, 4] },
    ].filter(({ y }) => y.length > 0),
  }).node;
}

/** Strength and frequency of the modulation of a carrier band: a bearing defect has lines here. */
function envelopeCharts(envelopes, bearing) {
  const chart = ({ axis, band_hz: band, frequencies_hz: x, event, neighbours }) =>
    lineChart({
      title: `${axis}, carrier ${band.map(figure).join(" to ")} Hz`,
      summary: `Envelope spectrum of ${axis} during the event and of its normal neighbours`,
      isWide: true,
      x: { label: "modulation frequency (Hz)" },
      y: { label: "amplitude / mean power", size: AXIS_WIDTH },
      curves: [
        { name: "event", x, y: event, colour: "curve-1" },
        { name: "normal neighbours", x, y: neighbours, colour: "curve-2", dash: [6, 4] },
      ].filter(({ y }) => y.length > 0),
      lines: bearing
        .filter(({ hz }) => hz >= x[0] && hz <= x.at(-1))
        .map(({ name, hz }, at) => ({
          x: hz,
          colour: "idle",
          label: `${name} ${figure(hz)} Hz`,
          // Neighbouring labels alternate between two lines, so that they do not overlap.
          isBelow: at % 2 === 1,
        })),
    }).node;
  const isAlone = envelopes.every(({ neighbours }) => neighbours.length === 0);
  return [
    el("div", { class: "stack" }, envelopes.map(chart)),
    isAlone && quiet("This recording has no normal neighbour to compare the event with."),
    bearing.length === 0 &&
      quiet(
        "With the geometry of the bearing (",
        code("bearing"),
        " in the configuration), its defect frequencies are marked.",
      ),
  ];
}

/** Measured and predicted values share a colour scale; the scale of the error is centred at zero. */
function scalogram({ axis, frequencies_hz: hertz, t, seen, expected, error }, by) {
  const say = (value) => `${figure(value)} dB`;
  const x = { label: "time (s)", names: t.map(figure), times: t };
  const y = { label: "frequency (Hz)", names: hertz.map(figure), values: hertz };
  const map = (what, z, range, isDiverging) => {
    const title = `${axis}, ${what}`;
    const summary = `Scalogram of ${title}`;
    return heatMap({ title, summary, x, y, z, what: "level", range, say, isDiverging }).node;
  };
  const range = extent([...seen, ...expected]);
  const most = Math.max(...extent(error).filter(isNumber).map(Math.abs));
  return el(
    "div",
    { class: "charts" },
    map("measured", seen, range),
    map(by ? `expected by ${COMPONENTS[by]}` : "expected", expected, range),
    map("measured minus expected", error, [-most, most], true),
  );
}
