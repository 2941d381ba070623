/** Migrated notebooks: the rewrites by rule, and the remaining manual steps. */
import { advice, block, card, path, prose, quiet, wordOf } from "../dom.mjs";
import { time } from "../format.mjs";
import { dataTable, number, text } from "../table.mjs";

export function migration({ state }) {
  const { notebooks = [], rules = [] } = state.migration ?? {};
  if (notebooks.length === 0)
    return advice("No notebook migrated yet", "landfall migrate NOTEBOOK", "rewrites one");
  const left = notebooks.filter(({ needs_you: places }) => places.length > 0);
  const table = (id, label, columns, items) => card(label, null, dataTable({ id, label, columns, items }));
  return [
    card(
      "Manual changes",
      null,
      left.length === 0 && quiet("None: every finding was rewritten."),
      left.map(({ source, needs_you: places }) =>
        block(
          source,
          places.map((place) => quiet(place)),
        ),
      ),
    ),
    table("notebooks", "Notebooks", NOTEBOOKS, notebooks),
    table("rules", "Findings by rule", RULES, rules),
  ];
}

function counts({ findings }) {
  const each = Object.entries(findings).map((pair) => pair.join(" × "));
  return each.join(", ");
}

const NOTEBOOKS = [
  ...[
    ["source", "From"],
    ["target", "To"],
  ].map(([id, title]) =>
    text(
      id,
      title,
      (notebook) => notebook[id],
      (notebook) => path(notebook[id]),
    ),
  ),
  text(
    "at",
    "Migrated",
    ({ at }) => at,
    ({ at }) => time(at),
  ),
  text("findings", "Findings", counts, (notebook) => counts(notebook).replaceAll(" × ", "\u00a0×\u00a0")),
  number("needs", "Manual changes", ({ needs_you: places }) => places.length),
];
const RULES = [
  text("rule", "Rule"),
  text(
    "title",
    "Subject",
    ({ title }) => title,
    ({ title }) => prose(wordOf(title)),
  ),
  number("count", "Findings", ({ count }) => count),
];
