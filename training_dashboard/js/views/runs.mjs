/** All runs as a sortable table; a click selects the run for the loss curves and the details. */

import { append, badge, el, longReason, replace } from "../dom.mjs";
import { duration, figure, time } from "../format.mjs";

/** A column: heading, sort key of an entry, cell content; `numeric` aligns right. */
function columns(store) {
  const perStream = Object.keys(store.state.streams ?? {}).map((name) => ({
    id: `best-${name}`, title: `Best loss, ${store.streamTitle(name)}`, numeric: true,
    key: (run) => run.streams[name]?.best_val_loss ?? null,
    cell: (run) => figure(run.streams[name]?.best_val_loss),
  }));
  return [
    { id: "run", title: "Run", key: (run) => run.run_id, cell: (run) => runLink(run) },
    { id: "state", title: "State", key: (run) => run.state, cell: (run) => stateCell(run) },
    {
      id: "started", title: "Started", descending: true,
      key: (run) => run.started_at, cell: (run) => unbroken(time(run.started_at)),
    },
    ...perStream,
    {
      id: "duration", title: "Duration", numeric: true,
      key: (run) => run.duration_seconds, cell: (run) => unbroken(duration(run.duration_seconds)),
    },
    { id: "device", title: "Hardware", key: (run) => run.device, cell: (run) => run.device ?? "–" },
  ];
}

const runLink = (run) => el("a", { href: `#run=${encodeURIComponent(run.run_id)}` }, run.run_id);

const unbroken = (text) => el("span", { class: "unbroken" }, text);

const stateCell = (run) => [
  badge(run.state, run.reason),
  longReason(run.reason) && el("small", {}, run.reason),
  !run.folder_present && el("small", {}, "only the record is left"),
];

/** Missing values stand last in both directions. */
function compare(key, direction) {
  return (left, right) => {
    const [a, b] = [key(left), key(right)];
    if (a === null || b === null) return (a === null) - (b === null);
    return (a < b ? -1 : a > b ? 1 : 0) * direction;
  };
}

function table(store) {
  const all = columns(store);
  let sorted = { column: all.find((column) => column.id === "started"), direction: -1 };
  const rows = el("tbody");
  const heads = all.map((column) => el("th",
    { scope: "col", class: column.numeric && "numeric", "data-column": column.id },
    el("button", { type: "button", onclick: () => sortBy(column) }, column.title)));

  function sortBy(column) {
    const first = column.descending ? -1 : 1;
    sorted = { column, direction: sorted.column === column ? -sorted.direction : first };
    fill();
  }

  function fill() {
    heads.forEach((head, position) => {
      const active = all[position] === sorted.column;
      if (active) head.setAttribute("aria-sort", sorted.direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    const runs = [...store.index.runs].sort(compare(sorted.column.key, sorted.direction));
    replace(rows, runs.map((run) => row(store, all, run)));
    mark();
  }

  function mark() {
    const shown = new Set(Object.values(store.selection.streams).map((stream) => stream.runId));
    for (const line of rows.children) line.setAttribute("aria-current", String(shown.has(line.dataset.run)));
  }

  store.addEventListener("selection", mark);
  fill();
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" },
    el("table", { class: "runs" }, el("thead", {}, el("tr", {}, heads)), rows));
}

function row(store, all, run) {
  // The link in the first cell serves the keyboard; the whole row is a larger target for the mouse.
  const onclick = (event) => { if (!event.target.closest("a")) store.select(run.run_id); };
  return el("tr", { "data-run": run.run_id, onclick },
    all.map((column, at) => el(at ? "td" : "th",
      { scope: at ? null : "row", class: column.numeric && "numeric" }, column.cell(run))));
}

export default {
  id: "runs",
  title: "Runs",
  mount(body, store) {
    const empty = store.state.runs?.exported ? "No run yet." : "The run history was not exported.";
    append(body, [store.index.runs.length > 0 ? table(store) : el("p", { class: "quiet" }, empty)]);
  },
};
