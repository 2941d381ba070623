/** Environment and configuration of the selected run. */

import { append, el, facts, replace } from "../dom.mjs";
import { MISSING, duration, hardware, time } from "../format.mjs";

/** A configuration as indented `key: value` lines, close to the YAML it came from. */
export function outline(value, depth = 0) {
  const indent = "  ".repeat(depth);
  return Object.entries(value).map(([key, item]) => {
    const isBranch = item !== null && typeof item === "object" && !Array.isArray(item) && Object.keys(item).length > 0;
    return isBranch ? `${indent}${key}:\n${outline(item, depth + 1)}` : `${indent}${key}: ${leaf(item)}`;
  }).join("\n");
}

const leaf = (item) => (typeof item === "string" ? item || '""' : JSON.stringify(item));

function details(title, { runId, run }) {
  const { environment, config } = run;
  const git = environment?.git;
  const packages = Object.entries(environment?.packages ?? {});
  return el("article", { class: "card" },
    el("header", {}, el("div", {}, el("h3", {}, title), el("p", { class: "quiet" }, `Run ${runId}`))),
    facts([
      ["Started", time(run.started_at)],
      ["Duration", duration(run.duration_seconds)],
      ["Reason", run.reason],
      ["Hardware", hardware(environment?.device)],
      ["Software", environment && software(environment)],
      ["System", environment?.platform],
      ["Commit", git?.commit && `${git.commit.slice(0, 12)}${git.dirty ? ", with local changes" : ""}`],
    ]),
    !environment && el("p", { class: "quiet" }, "The environment of this run was not recorded."),
    !config && el("p", { class: "quiet" }, "The configuration of this run was not recorded."),
    config && fold("Configuration", outline(config)),
    packages.length > 0 && fold(`Packages (${packages.length})`, packages.map((pair) => pair.join(" ")).join("\n")));
}

function software({ python, torch, cuda }) {
  return [`Python ${python ?? MISSING}`, `torch ${torch ?? MISSING}`, cuda ? `CUDA ${cuda}` : "no CUDA"].join(", ");
}

const fold = (title, text) => el("details", {}, el("summary", {}, title), el("pre", { tabindex: "0" }, text));

export default {
  id: "run-details",
  title: "Run details",
  isShown: (store) => store.index.runs.length > 0,
  mount(body, store) {
    const cards = el("div", { class: "cards" });
    append(body, [cards]);
    const redraw = () => {
      const shown = Object.entries(store.selection.streams).filter(([, stream]) => stream.run);
      replace(cards, shown.map(([name, stream]) => details(store.streamTitle(name), stream)));
      if (shown.length === 0) append(cards, [el("p", { class: "quiet" }, "The selected run has no record.")]);
    };
    store.addEventListener("selection", redraw);
    redraw();
  },
};
