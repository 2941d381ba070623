/** Starts the page: loads the state, fills the masthead, and mounts every view of the registry. */

import { append, badge, code, el, icon, replace, toneOf } from "./dom.mjs";
import { time } from "./format.mjs";
import { Store } from "./store.mjs";
import { VIEWS } from "./views/registry.mjs";

/** Kind of load error → what happened, and the way out around the command that leads there. */
const ADVICE = {
  empty: ["Nothing has been exported yet", "Run", "make validate", "in the workspace, then reload this page."],
  damaged: ["The exported state is damaged", "Export it again with", "make validate", "and reload this page."],
  version: ["The exported state has another version", "Export again with", "make validate", "and reload this page."],
  offline: ["The exported state cannot be fetched", "Serve it again with", "make dashboard", "and reload this page."],
  unknown: ["The page could not be drawn", "If reloading does not help, run", "make validate", "and reload this page."],
};

const main = document.getElementById("views");

function masthead(state) {
  const verdict = state.verdict ?? { state: "waiting", title: "No verdict", detail: "" };
  append(document.getElementById("masthead"), [
    el("div", { class: `verdict ${toneOf(verdict.state)}`, id: "verdict" },
      el("span", { class: "seal" }, icon(verdict.state)),
      el("div", {}, el("h1", {}, verdict.title), el("p", {}, verdict.detail))),
    el("p", { class: "stamp" }, "Exported ", el("time", { datetime: state.generated_at }, time(state.generated_at))),
  ]);
  document.title = `${verdict.title} · Landfall training dashboard`;
}

function mount(view, store) {
  const heading = el("h2", { id: `${view.id}-title` }, view.title);
  const body = el("div", { class: "body" });
  const section = el("section", { id: view.id, "aria-labelledby": `${view.id}-title` }, heading, body);
  main.append(section);
  try {
    view.mount(body, store);
  } catch (error) {
    // One view that meets unexpected data must not take the others with it.
    console.error(error);
    replace(body, el("p", { class: "quiet" }, `This part could not be drawn: ${error.message}`));
  }
}

function showError(error) {
  const [title, before, command, after] = ADVICE[error.kind] ?? ADVICE.unknown;
  replace(main, el("div", { class: "notice", role: "alert" },
    error.kind === "empty" ? badge("not started") : badge("failed"),
    el("h2", {}, title), el("p", {}, `${before} `, code(command), ` ${after}`),
    el("p", { class: "quiet" }, error.message)));
}

try {
  const store = await Store.load();
  masthead(store.state);
  main.replaceChildren();
  for (const view of VIEWS) if (view.isShown?.(store) ?? true) mount(view, store);
} catch (error) {
  if (!error.kind) console.error(error);
  showError(error);
} finally {
  main.setAttribute("aria-busy", "false");
}
