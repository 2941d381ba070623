/** Loss curves of the selected run, one chart per stream, with a table of the same figures for those who read. */

import { draw } from "../chart.mjs";
import { append, badge, el, replace } from "../dom.mjs";
import { duration, figure, time } from "../format.mjs";

function runChoice(store) {
  const choice = el("select", { id: "run-choice", onchange: () => store.select(choice.value || null) },
    el("option", { value: "" }, "newest of each stream"),
    store.index.runs.map((run) => el("option", { value: run.run_id }, `${run.run_id} · ${time(run.started_at)}`)));
  const follow = () => { choice.value = store.selection.runId ?? ""; };
  store.addEventListener("selection", follow);
  follow();
  return el("label", { class: "control", for: "run-choice" }, "Run ", choice);
}

function scaleChoice(onchange) {
  const option = (value, text, checked) => el("label", {},
    el("input", { type: "radio", name: "scale", value, checked, onchange: () => onchange(value) }),
    el("span", {}, text));
  return el("fieldset", { class: "control switch" }, el("legend", {}, "Loss axis"),
    option("linear", "linear", true), option("log", "logarithmic", false));
}

function describe(title, run) {
  const losses = run.history.map((point) => point.train_loss).filter((value) => value !== null);
  const best = run.best ? `; best validation loss ${figure(run.best.val_loss)} in epoch ${run.best.epoch}` : "";
  const fall = `training from ${figure(losses[0])} to ${figure(losses.at(-1))}`;
  return `Loss of ${title} over ${run.history.length} epochs: ${fall}${best}.`;
}

const EPOCH_COLUMNS = [
  ["Epoch", (point) => point.epoch],
  ["Training", (point) => figure(point.train_loss)],
  ["Validation", (point) => figure(point.val_loss)],
  ["Learning rate", (point) => figure(point.lr)],
  ["Time", (point) => duration(point.seconds)],
  ["Windows/s", (point) => figure(point.windows_per_second)],
];

function epochTable(run) {
  const row = (point) => el("tr", { class: point.epoch === run.best?.epoch ? "best" : null },
    EPOCH_COLUMNS.map(([, cell], at) => el(at ? "td" : "th", { scope: at ? null : "row" }, cell(point))));
  return el("details", {}, el("summary", {}, "Figures per epoch"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Figures per epoch" },
      el("table", { class: "numbers" },
        el("thead", {}, el("tr", {}, EPOCH_COLUMNS.map(([title]) => el("th", { scope: "col" }, title)))),
        el("tbody", {}, run.history.map(row)))));
}

function panel(store, name, { runId, run, problem }, scale) {
  const title = store.streamTitle(name);
  const heading = el("header", {}, el("h3", {}, title), run && badge(run.state, run.reason));
  const card = { class: "card chart-card", "data-stream": name };
  if (!run) return el("article", card, heading, el("p", { class: "quiet" }, problem));
  const empty = run.history.length === 0 && run.step_history.length === 0;
  const chart = el("div", { class: "chart", role: "img", "aria-label": describe(title, run) });
  if (!empty) {
    chart.setAttribute("aria-busy", "true");
    draw(chart, run, scale)
      .catch((error) => replace(chart, el("p", { class: "quiet" }, error.message)))
      .finally(() => chart.removeAttribute("aria-busy"));
  }
  return el("article", card, heading,
    el("p", { class: "quiet" }, `Run ${runId}`),
    empty ? el("p", { class: "quiet" }, "No epoch has ended yet, so there is no curve.") : chart,
    run.history.length > 0 && epochTable(run));
}

export default {
  id: "loss",
  title: "Loss",
  mount(body, store) {
    let scale = "linear";
    const note = el("p", { class: "quiet", role: "status" });
    const charts = el("div", { class: "cards" });
    const redraw = () => {
      const { streams } = store.selection;
      note.textContent = store.selection.note ?? "";
      replace(charts, Object.entries(streams).map(([name, shown]) => panel(store, name, shown, scale)));
    };
    const rescale = (value) => { scale = value; redraw(); };
    append(body, [el("div", { class: "controls" }, runChoice(store), scaleChoice(rescale)), note, charts]);
    store.addEventListener("selection", redraw);
    // Chart colours are taken from the style sheet when drawn.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    redraw();
  },
};
