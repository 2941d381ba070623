/** One card per stream: state, progress, hardware, and data quality. */

import { append, badge, code, el, facts, icon, longReason, toneOf } from "../dom.mjs";
import { count, duration, figure, hardware, plural, time } from "../format.mjs";

function card([name, stream]) {
  return el("article", { class: "card", "data-stream": name, "aria-labelledby": `stream-${name}` },
    el("header", {},
      el("div", {}, el("h3", { id: `stream-${name}` }, stream.title), el("p", { class: "quiet" }, stream.subject)),
      badge(stream.state, stream.reason)),
    longReason(stream.reason) && el("p", { class: `reason ${toneOf(stream.state)}` }, stream.reason),
    stream.run_id ? training(stream) : untrained(name),
    quality(stream.quality));
}

const untrained = (name) => el("p", { class: "quiet" },
  "Train it with ", code(`make train-${name}`), " or run ", code("make validate"), ".");

function training(stream) {
  const share = Math.round((stream.progress ?? 0) * 100);
  const { device, best, checkpoint } = stream;
  const foreign = checkpoint?.run_id && checkpoint.run_id !== stream.run_id;
  return [
    meter(stream, share),
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

function meter(stream, share) {
  const fill = el("span");
  fill.style.width = `${share}%`;
  const label = `Training progress of ${stream.title}`;
  const range = { "aria-valuenow": share, "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": label };
  return el("div", { class: `meter ${toneOf(stream.state)}`, role: "progressbar", ...range }, fill);
}

function quality(summary) {
  if (!summary) return block("Data quality", el("p", { class: "quiet" }, "No file checked yet."));
  const { files, kept, dropped, warned } = summary;
  const line = `${kept} of ${plural(files, "file")} kept, ${dropped} dropped, ${warned} with warnings`;
  return block("Data quality", el("p", {}, line),
    (summary.worst ?? []).length > 0 && el("ul", { class: "findings" }, summary.worst.map(finding)),
    summary.more > 0 && el("p", { class: "quiet" }, `and ${plural(summary.more, "further kind")} of finding`));
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
