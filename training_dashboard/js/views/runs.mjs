/** All runs as a sortable table; a click selects the run for the loss curves and the details. */

import { append, badge, el, longReason } from "../dom.mjs";
import { duration, figure, time } from "../format.mjs";
import { sortedTable } from "../table.mjs";

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

function table(store) {
  const mark = (rows) => {
    const shown = new Set(Object.values(store.selection.streams).map((stream) => stream.runId));
    for (const line of rows.children) line.setAttribute("aria-current", String(shown.has(line.dataset.run)));
  };
  const whole = sortedTable({
    name: "runs", label: "Runs", columns: columns(store), items: store.index.runs, sortedBy: "started",
    line: (run) => ({ "data-run": run.run_id, onclick: (event) => choose(store, run, event) }), onfill: mark,
  });
  store.addEventListener("selection", () => mark(whole.querySelector("tbody")));
  return whole;
}

/** The link in the first cell serves the keyboard; the whole row is a larger target for the mouse. */
function choose(store, run, event) {
  if (!event.target.closest("a")) store.select(run.run_id);
}

export default {
  id: "runs",
  title: "Runs",
  mount(body, store) {
    const empty = store.state.runs?.exported ? "No run yet." : "The run history was not exported.";
    append(body, [store.index.runs.length > 0 ? table(store) : el("p", { class: "quiet" }, empty)]);
  },
};
