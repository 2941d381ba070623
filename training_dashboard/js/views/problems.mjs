/** Inputs the export or the page could not read; shown only where there are any. */

import { append, badge, code, el } from "../dom.mjs";

export default {
  id: "problems",
  title: "Unreadable inputs",
  isShown: ({ state, notes }) => (state.problems ?? []).length + notes.length > 0,
  mount(body, { state, notes }) {
    const line = (...text) => el("li", {}, badge("warn"), el("span", {}, text));
    append(body, [el("ul", { class: "findings card" },
      (state.problems ?? []).map((problem) => line(code(problem.path), ` ${problem.message}`)),
      notes.map((note) => line(note)))]);
  },
};
