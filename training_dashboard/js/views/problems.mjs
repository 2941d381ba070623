/** Inputs the export or the page could not read; shown only where there are any. */

import { append, badge, code, el } from "../dom.mjs";

export default {
  id: "problems",
  title: "Unreadable inputs",
  isShown: ({ state, notes }) => (state.problems ?? []).length + notes.length > 0,
  mount(body, { state, notes }) {
    append(body, [el("ul", { class: "findings card" },
      (state.problems ?? []).map((problem) => el("li", {}, badge("warn"), el("span", {}, code(problem.path), ` ${problem.message}`))),
      notes.map((note) => el("li", {}, badge("warn"), el("span", {}, note))))]);
  },
};
