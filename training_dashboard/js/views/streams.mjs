/** One card per stream: state, progress, figures, hardware, data quality, and the picture of its scores. */

import { append, badge, code, el, facts, icon, longReason, toneOf } from "../dom.mjs";
import { count, duration, figure, hardware, percent, plural, score, time } from "../format.mjs";

function card([name, stream]) {
  return el("article", { class: "card", "data-stream": name, "aria-labelledby": `stream-${name}` },
    el("header", {},
      el("div", {}, el("h3", { id: `stream-${name}` }, stream.title), el("p", { class: "quiet" }, stream.subject)),
      badge(stream.state, stream.reason)),
    longReason(stream.reason) && el("p", { class: `reason ${toneOf(stream.state)}` }, stream.reason),
    stream.run_id ? training(stream) : el("p", { class: "quiet" }, "Train it with ", code(`make train-${name}`), " or run ", code("make validate"), "."),
    scores(stream, name),
    quality(stream.quality));
}

function training(stream) {
  const share = Math.round((stream.progress ?? 0) * 100);
  const { device, best, checkpoint } = stream;
  const foreign = checkpoint?.run_id && checkpoint.run_id !== stream.run_id;
  return [
    el("div", { class: `meter ${toneOf(stream.state)}`, role: "progressbar", "aria-label": `Training progress of ${stream.title}`,
      "aria-valuenow": share, "aria-valuemin": 0, "aria-valuemax": 100 }, meterFill(share)),
    el("p", { class: "meter-text" },
      el("span", {}, `Epoch ${count(stream.epoch)} of ${count(stream.epochs)}`),
      el("span", {}, `${duration(stream.duration_seconds)} · ${share} %`)),
    facts([
      ["Best validation loss", best && [el("strong", {}, figure(best.val_loss)), ` in epoch ${best.epoch}`]],
      ["Run", code(stream.run_id)],
      ["Last sign of life", stream.finished_at ? null : time(stream.updated_at)],
      ["Hardware", hardware(device) && [hardware(device), device.reason && el("small", {}, device.reason)]],
      ["Weights in use", checkpoint && [code(checkpoint.path),
        !checkpoint.present && el("small", { class: "warn-text" }, icon("warn"), "the file is missing"),
        foreign && el("small", { class: "warn-text" }, icon("warn"), `from another run: ${checkpoint.run_id}`)]],
    ]),
  ];
}

function meterFill(share) {
  const fill = el("span");
  fill.style.width = `${share}%`;
  return fill;
}

function scores(stream, name) {
  const summary = stream.scores;
  if (!summary) return block("Detection", el("p", { class: "quiet" }, "Nothing scored yet."));
  const { threshold, detection } = summary;
  return block("Detection",
    detection ? figures(detection) : el("p", { class: "quiet" }, "No labels, so no detection figures: put a label file beside the data to judge the alarms."),
    facts([
      ["Scored", `${plural(summary.scores, "window")} of ${plural(summary.recordings, "recording")}: ${plural(summary.alarms, "alarm")} in ${plural(summary.events, "event")}`],
      ["Threshold", threshold && [figure(threshold.value), el("small", {}, thresholdText(threshold))]],
    ]),
    summary.timeline && el("figure", {},
      el("a", { href: `data/${encodeURIComponent(summary.timeline)}` },
        el("img", { src: `data/${encodeURIComponent(summary.timeline)}?${encodeURIComponent(summary.scored_at ?? "")}`, loading: "lazy",
          alt: `Anomaly score of ${stream.title} over time with the alarm threshold; ${plural(summary.events, "event")} found.` })),
      el("figcaption", { class: "quiet" }, `Scores over time, ${time(summary.scored_at)}`)));
}

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
    ["False alarms", percent(detection.false_alarm_rate), "of normal windows"],
  ];
  return el("dl", { class: "tiles" }, tiles.map(([term, value, note]) =>
    el("div", {}, el("dt", {}, term), el("dd", {}, value, note && el("small", {}, note)))));
}

function quality(summary) {
  if (!summary) return block("Data quality", el("p", { class: "quiet" }, "No file checked yet."));
  const line = `${summary.kept} of ${plural(summary.files, "file")} kept, ${summary.dropped} dropped, ${summary.warned} with warnings`;
  return block("Data quality", el("p", {}, line),
    (summary.worst ?? []).length > 0 && el("ul", { class: "findings" }, summary.worst.map(finding)),
    summary.more > 0 && el("p", { class: "quiet" }, `and ${plural(summary.more, "further kind")} of finding in the quality reports`));
}

function finding(message) {
  const channel = message.message?.includes(message.channel) ? null : message.channel;
  const others = message.files > 1 ? ` and ${plural(message.files - 1, "other file")}` : "";
  const where = [message.file_id + others, channel].filter(Boolean).join(", ");
  return el("li", {}, badge(message.severity), el("span", {}, message.message || message.rule, el("small", {}, where)));
}

const block = (title, ...children) => el("div", { class: "block" }, el("h4", {}, title), children);

export default {
  id: "streams",
  title: "Streams",
  mount(body, { state }) {
    append(body, [el("div", { class: "cards" }, Object.entries(state.streams ?? {}).map(card))]);
  },
};
