/** The validation checklist, grouped, with what was found and the way out. */

import { append, badge, code, el } from "../dom.mjs";
import { plural, time } from "../format.mjs";

function grouped(items) {
  const groups = new Map();
  for (const item of items) groups.set(item.group, [...(groups.get(item.group) ?? []), item]);
  return groups;
}

function tally(items) {
  const number = (status) => items.filter((item) => item.status === status).length;
  return [["passed", "PASS"], ["failed", "FAIL"], ["skipped", "SKIP"]]
    .filter(([, status]) => number(status) > 0).map(([word, status]) => `${number(status)} ${word}`).join(", ");
}

const row = (item) => el("tr", { "data-check": item.id, "data-status": item.status },
  el("td", {}, badge(item.status)),
  el("th", { scope: "row" }, item.title, el("small", {}, item.id)),
  el("td", {}, item.detail, item.hint && el("p", { class: "hint" }, el("b", {}, "Way out: "), item.hint)));

const group = (name, title, items) => el("table", { class: "checks card" },
  el("caption", {}, el("b", {}, [name, title].filter(Boolean).join(" ")), " ", tally(items)),
  el("thead", { class: "unseen" },
    el("tr", {}, ["Status", "Check", "Found"].map((text) => el("th", { scope: "col" }, text)))),
  el("tbody", {}, items.map(row)));

export default {
  id: "checklist",
  title: "Validation checklist",
  mount(body, { state }) {
    const { checklist } = state;
    if (!checklist) {
      const advice = ["Nothing validated yet: ", code("make validate"), " runs the checks."];
      append(body, [el("p", { class: "quiet" }, advice)]);
      return;
    }
    const { items, groups, generated_at } = checklist;
    const summary = `${plural(items.length, "check")} on ${time(generated_at)}: ${tally(items)}.`;
    const tables = [...grouped(items)].map(([name, members]) => group(name, groups?.[name], members));
    append(body, [el("p", { class: "quiet" }, summary), tables]);
  },
};
