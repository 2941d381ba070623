/** The machines of a fleet, those that need attention first; each leads to its own page. */
import { advice, badge, card, el, quiet, small } from "../dom.mjs";
import { MISSING, count, plural, severity, time } from "../format.mjs";
import { dataTable, number, text } from "../table.mjs";

export async function fleet(store) {
  const path = store.state.fleet;
  if (!path) return advice("No fleet yet", "landfall fleet report", "lists its machines");
  const { machines = [], generated_at: at } = await store.document(path);
  const states = [...new Set(machines.map(({ state }) => state))];
  const inState = (name) => machines.filter(({ state }) => state === name).length;
  const items = machines.map((machine, rank) => ({ ...machine, rank }));
  return card(
    plural(machines.length, "machine"),
    quiet(`Reported ${time(at)}. Those that need attention first.`),
    el(
      "p",
      { class: "controls" },
      states.map((state) => el("span", {}, badge(state), ` ${count(inState(state))}`)),
    ),
    dataTable({ id: "machines", label: "Machines", columns: columnsOf(store), items }),
  );
}

const when = (id, title) =>
  text(
    id,
    title,
    (machine) => machine[id],
    (machine) => (machine[id] ? time(machine[id]) : MISSING),
  );

const columnsOf = (store) => [
  text(
    "machine",
    "Machine",
    ({ id }) => id,
    ({ id, page, tags = [] }) => [
      page && store.isServed ? el("a", { href: page }, id) : id,
      tags.length > 0 && small(tags.join(", ")),
    ],
  ),
  text(
    "state",
    "State",
    ({ rank }) => rank,
    ({ state }) => badge(state),
  ),
  text(
    "attention",
    "What needs attention",
    ({ attention = [] }) => attention.join("; "),
    ({ attention = [] }) => attention.map((each) => el("div", {}, each)),
  ),
  number("events", "Open events", ({ open_events: events }) => events, count),
  number("severity", "Severity", ({ severity: worst }) => worst, severity),
  when("data_at", "Newest data"),
  when("scored_at", "Scored"),
];
