/** All runs as a table; a selected run shows its environment and configuration, several show their differences. */
import { advice, badge, card, code, el, facts, file, fill, fold, quiet, small } from "../dom.mjs";
import { MISSING, count, duration, figure, score, time } from "../format.mjs";
import { href } from "../route.mjs";
import { dataTable, number, text } from "../table.mjs";

export async function runs(store, route) {
  const { runs: items } = store.index;
  const isTraining = store.streams.some((name) => store.stream(name).state === "running");
  if (items.length === 0)
    return isTraining
      ? quiet(
          "The first run is shown under ",
          el("a", { href: href("training") }, "Training"),
          ". It is listed here after the next export.",
        )
      : advice("No run recorded yet", "landfall pipeline", "trains and records the first");
  const picked = el("div", { class: "cards" });
  const refresh = async () => fill(picked, await details(store, route.all("run")));
  const pick = ({ target }) => {
    const others = route.all("run").filter((id) => id !== target.value);
    route.note({ run: target.checked ? [...others, target.value] : others });
    refresh();
  };
  await refresh();
  const columns = columnsOf(store, items, route.all("run"), pick);
  return [
    card(
      "All runs",
      quiet(
        "Select one run to see its details, or several to compare them. The address contains the selection.",
      ),
      dataTable({ id: "runs", label: "Runs", columns, items, sortedBy: "started" }),
    ),
    picked,
  ];
}

const columnsOf = (store, items, chosen, pick) => [
  text(
    "run",
    "Run",
    (run) => run.run_id,
    ({ run_id: id }) =>
      el(
        "label",
        { class: "pick" },
        el("input", {
          type: "checkbox",
          id: `pick-${id}`,
          value: id,
          checked: chosen.includes(id),
          onchange: pick,
        }),
        id,
      ),
  ),
  text(
    "state",
    "State",
    (run) => run.state,
    (run) => [
      badge(run.state),
      run.reason && small(run.reason),
      !run.folder_present && small("its folder was deleted"),
      small(
        el(
          "a",
          { href: href("training", { run: run.run_id }), "aria-label": `Curves of ${run.run_id}` },
          "Curves",
        ),
      ),
    ],
  ),
  {
    ...text(
      "started",
      "Started",
      (run) => run.started_at,
      (run) => time(run.started_at),
    ),
    first: -1,
  },
  ...store.streams.flatMap((name) => [
    {
      ...number(
        `best-${name}`,
        `Best loss, ${store.stream(name).title}`,
        (run) => run.streams[name]?.best?.val_loss,
        figure,
      ),
      first: 1,
    },
    number(
      `events-${name}`,
      `Events, ${store.stream(name).title}`,
      (run) => run.streams[name]?.detection?.events,
      count,
    ),
    number(
      `auroc-${name}`,
      `AUROC, ${store.stream(name).title}`,
      (run) => run.streams[name]?.detection?.auroc,
      score,
    ),
  ]),
  ...(items.some((run) => tagsOf(run).length > 0)
    ? [text("tags", "Tags", (run) => tagsOf(run).join(" ") || MISSING)]
    : []),
  number("duration", "Duration", (run) => run.duration_seconds, duration),
  text("device", "Hardware", (run) => hardwareOf(run) || MISSING),
];

const tagsOf = (run) => [...new Set(Object.values(run.streams).flatMap(({ notes }) => notes?.tags ?? []))];

const hardwareOf = (run) =>
  [...new Set(Object.values(run.streams).map(({ hardware }) => hardware))].filter(Boolean).join("; ");

async function details(store, ids) {
  const failed =
    (run_id) =>
    ({ message }) => ({ run_id, message });
  const records = await Promise.all(ids.map((id) => store.record(id).catch(failed(id))));
  return [
    ids.length > 1 &&
      el("p", {}, el("a", { href: href("training", { run: ids }) }, "Show their curves together")),
    records.map(({ run_id: id, message }) => message && quiet(`${id}: ${message}`)),
    store.streams.map((name) => {
      const { title } = store.stream(name);
      const trained = records
        .filter(({ streams }) => streams?.[name])
        .map(({ run_id: id, streams }) => ({ id, ...streams[name] }));
      return trained.length > 1
        ? difference(title, trained)
        : trained.map((run) => single(store, title, run));
    }),
  ];
}

function single(store, title, { id, environment, config, ...run }) {
  const { commit, dirty } = environment?.git ?? {};
  return card(
    title,
    badge(run.state),
    facts([
      ["Run", id],
      ["Started", time(run.started_at)],
      ["Duration", duration(run.duration_seconds)],
      ["Reason", run.reason],
      ["Hardware", run.hardware],
      ["Events", run.detection && count(run.detection.events)],
      ["Faults found", run.detection?.faults_total && faultsFound(run.detection)],
      ["Row AUROC", run.detection?.auroc && score(run.detection.auroc)],
      ["Tags", run.notes?.tags?.join(" ")],
      ["Note", run.notes?.note],
      [
        "Weights",
        run.weights && [code(run.weights), small(code(`landfall promote ${id}`), " puts them in use")],
      ],
      ["Executed notebook", run.notebook && file(store, run.notebook)],
      ["Commit", commit && `${commit.slice(0, 12)}${dirty ? ", with local changes" : ""}`],
    ]),
    listing("configuration", config),
    listing("environment", environment),
  );
}

const faultsFound = ({ faults_found: found, faults_total: total }) => `${found} of ${total}`;

const listing = (what, tree) =>
  tree
    ? fold(
        `The ${what}`,
        el(
          "pre",
          { tabindex: "0" },
          [...leaves(tree)].map(([key, value]) => `${key}: ${value}\n`),
        ),
      )
    : quiet(`The ${what} of this run was not recorded.`);

/** A tree as `a.b.c` → value in JSON, strings without quotes. */
const leaves = (tree, prefix = "") =>
  new Map(
    Object.entries(tree ?? {}).flatMap(([key, value]) => {
      const isBranch = value?.constructor === Object && Object.keys(value).length > 0;
      if (isBranch) return [...leaves(value, `${prefix}${key}.`)];
      return [[prefix + key, typeof value === "string" ? value : JSON.stringify(value)]];
    }),
  );

/** A table of the settings and facts that differ between the runs `trained`. */
function difference(title, trained) {
  const trees = trained.map(({ detection, notes, config, environment }) =>
    leaves({ ...(detection && { detection }), ...(notes && { notes }), config, environment }),
  );
  const keys = [...new Set(trees.flatMap((tree) => [...tree.keys()]))];
  const items = keys.filter((key) => trees.some((tree) => tree.get(key) !== trees[0].get(key)));
  const columns = [
    text("key", "Setting", (key) => key),
    ...trees.map((tree, at) => text(`run-${at}`, trained[at].id, (key) => tree.get(key) ?? MISSING)),
  ];
  const same = quiet("Configuration and environment are the same.");
  return el(
    "div",
    { class: "wide" },
    card(
      `${title}: what differs`,
      null,
      items.length === 0
        ? same
        : dataTable({ id: `difference-${title}`, label: `Differences, ${title}`, columns, items }),
    ),
  );
}
