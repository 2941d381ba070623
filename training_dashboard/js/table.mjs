/** A table in a scrolling frame that sorts by any column; missing values stand last in both directions. */

import { el, replace } from "./dom.mjs";

/**
 * columns: `{id, title, key(item), cell(item), numeric?, descending?}`; the first cell of a line is its heading, a
 * `descending` column starts with the largest. sortedBy: id of the column that sorts at first. line: attributes of an
 * item's line. onfill: called with the table's body whenever it was filled.
 */
export function sortedTable({ name, label, columns, items, sortedBy, line, onfill = () => {} }) {
  const directionOf = (column) => (column.descending ? -1 : 1);
  let active = columns.find((column) => column.id === sortedBy);
  let direction = directionOf(active);
  const body = el("tbody");
  const heads = columns.map((column) => el("th",
    { scope: "col", class: column.numeric && "numeric", "data-column": column.id },
    el("button", { type: "button", onclick: () => sortBy(column) }, column.title)));

  function sortBy(column) {
    direction = column === active ? -direction : directionOf(column);
    active = column;
    fill();
  }

  function fill() {
    heads.forEach((head, position) => {
      const order = direction > 0 ? "ascending" : "descending";
      if (columns[position] === active) head.setAttribute("aria-sort", order);
      else head.removeAttribute("aria-sort");
    });
    replace(body, [...items].sort(compare(active.key, direction)).map((item) => row(columns, item, line(item))));
    onfill(body);
  }

  fill();
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    el("table", { class: `sorted ${name}` }, el("thead", {}, el("tr", {}, heads)), body));
}

const row = (columns, item, attributes) => el("tr", attributes,
  columns.map((column, at) => el(at ? "td" : "th",
    { scope: at ? null : "row", class: column.numeric && "numeric" }, column.cell(item))));

function compare(key, direction) {
  return (left, right) => {
    const [a, b] = [key(left), key(right)];
    if (a === null || b === null) return (a === null) - (b === null);
    return (a < b ? -1 : a > b ? 1 : 0) * direction;
  };
}
