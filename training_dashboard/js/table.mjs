/** A table that sorts by any column, filters by any word, and saves as CSV; missing values are always last. */
import { el, fill } from "./dom.mjs";
import { button, saveCsv } from "./download.mjs";

/** Long tables have a filter; the first rows are drawn immediately, and the others when the table is on screen. */
const [MANY, SCREENFUL, SOON_MS] = [8, 40, 30];
/** The user's settings of each table, restored when the page is drawn again. */
const settings = new Map();

/** A column: the value for sorting and saving, by default the field of its name, and the display of a cell. */
export const text = (id, title, key = (item) => item[id], cell = key) => ({ id, title, key, cell, first: 1 });
/** A column of numbers, the largest first. */
export const number = (id, title, key, say = String) => ({
  id,
  title,
  key,
  cell: (item) => say(key(item)),
  first: -1,
  side: "numeric",
});

/** columns: the first is the row header. sortedBy: id of the first sort column; without it, items keep their order.
 * pickers: further controls of the table. */
export function dataTable({ id, label, columns, items, sortedBy, pickers = [] }) {
  const setting = settings.get(id) ?? { by: sortedBy, direction: 0, words: "" };
  settings.set(id, setting);
  const active = () => columns.find((column) => column.id === setting.by);
  const rows = items.map((item) => ({ item }));
  const nodeOf = (row) =>
    (row.node ??= el(
      "tr",
      {},
      columns.map(({ cell, side }, at) =>
        el(at ? "td" : "th", { scope: at ? null : "row", class: side }, cell(row.item)),
      ),
    ));
  const heads = columns.map((column) =>
    el(
      "th",
      { scope: "col", class: column.side },
      el("button", { type: "button", id: `${id}-${column.id}`, onclick: () => sortBy(column) }, column.title),
    ),
  );
  const filter = el("input", {
    type: "search",
    id: `${id}-filter`,
    value: setting.words,
    placeholder: "Filter",
    "aria-label": `Filter ${label}`,
    oninput: () => {
      setting.words = filter.value;
      show();
    },
  });
  const tally = el("span", { class: "quiet", role: "status" });
  const body = el("tbody");
  let others;

  function sortBy(column) {
    setting.direction = column === active() ? -setting.direction : column.first;
    setting.by = column.id;
    show();
  }

  function found() {
    const words = setting.words.toLowerCase().split(/\s+/).filter(Boolean);
    const { key = () => null, first } = active() ?? {};
    setting.direction ||= first;
    return rows
      .filter((row) => words.every((word) => nodeOf(row).textContent.toLowerCase().includes(word)))
      .sort((a, b) => compare(key(a.item), key(b.item), setting.direction));
  }

  function show() {
    const shown = found();
    clearTimeout(others);
    fill(body, shown.slice(0, SCREENFUL).map(nodeOf));
    others = setTimeout(() => body.append(...shown.slice(SCREENFUL).map(nodeOf)), SOON_MS);
    tally.textContent = shown.length < rows.length ? `${shown.length} of ${rows.length}` : "";
    const order = setting.direction < 0 ? "descending" : "ascending";
    heads.forEach((head, at) => {
      head.setAttribute("aria-sort", columns[at] === active() ? order : "none");
    });
  }

  const save = () =>
    saveCsv(
      label,
      [columns, ...found()].map((row, at) =>
        columns.map(({ title, key }) => (at === 0 ? title : key(row.item))),
      ),
    );
  show();
  return el(
    "div",
    {},
    el(
      "div",
      { class: "controls" },
      pickers,
      rows.length > MANY && filter,
      tally,
      button("CSV", `${label} as CSV`, save),
    ),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      el("table", { id }, el("thead", {}, el("tr", {}, heads)), body),
    ),
  );
}

function compare(a, b, direction) {
  const [isAbsent, isOther] = [a, b].map((value) => value === null || value === undefined);
  return isAbsent || isOther ? isAbsent - isOther : (a < b ? -1 : a > b ? 1 : 0) * direction;
}
