/** The stages from data to export as a row, each with its state. */

import { append, el, icon, toneOf, wordOf } from "../dom.mjs";

function stage(node) {
  return el("li", { class: toneOf(node.state), "data-stage": node.id },
    el("span", { class: "seal" }, icon(node.state)),
    el("div", {},
      el("h3", {}, node.title),
      el("p", { class: "state" }, wordOf(node.state)),
      el("p", { class: "quiet" }, node.detail)));
}

export default {
  id: "pipeline",
  title: "Pipeline",
  mount(body, { state }) {
    append(body, [el("ol", { class: "stages" }, (state.pipeline ?? []).map(stage))]);
  },
};
