/** Live curves of one or several runs: loss, learning rate, gradient norm, throughput, memory and GPU utilisation. */
import { lineChart } from "../chart.mjs";
import { advice, badge, block, card, choice, dot, el, fill, fold, picker, quiet, warning } from "../dom.mjs";
import { count, duration, figure, isNumber, mebibytes, time } from "../format.mjs";
import { dataTable, number } from "../table.mjs";

/** The charts: fields of the steps and of the epochs. */
const MEASURES = [
  {
    title: "Loss",
    label: "loss (squared error, scaled)",
    step: "loss",
    epoch: "train_loss",
    validation: "val_loss",
  },
  { title: "Learning rate", label: "learning rate", step: "lr", epoch: "lr" },
  { title: "Gradient norm", label: "gradient norm", step: "grad_norm" },
  { title: "Throughput", label: "windows/s", epoch: "windows_per_second" },
  { title: "Memory", label: "memory (MiB)", step: "memory_mb" },
  { title: "GPU utilisation", label: "% of the time", step: "gpu_utilisation", isPercent: true },
];

const FIGURES = [
  ["epoch", "Epoch", count],
  ["train_loss", "Training loss"],
  ["val_loss", "Validation loss"],
  ["skill", "Skill"],
  ["lr", "Learning rate"],
  ["seconds", "Time", duration],
  ["windows_per_second", "Windows/s"],
].map(([key, title, say = figure]) => number(key, title, (epoch) => epoch[key], say));

const colourOf = (at) => `curve-${1 + (at % 7)}`;

export async function training(store, route, signal) {
  const ids = route.all("run");
  const settings = { scale: "linear", x: "epoch", smoothing: "0", ...Object.fromEntries(route.params) };
  const leave = (id) =>
    ids.includes(id) &&
    el(
      "a",
      {
        href: route.href({ run: ids.filter((other) => other !== id) }),
        "aria-label": `Leave out ${id}`,
      },
      "×",
    );
  const panels = store.streams.map((name) => panel(store, name, ids, settings, leave));
  const refresh = () => Promise.all(panels.map((one) => one.refresh()));
  const set = (name) => (value) => {
    settings[name] = value;
    route.note({ [name]: value });
    refresh();
  };
  const others = store.index.runs.filter((run) => !ids.includes(run.run_id));
  const options = [
    ["", ids.length > 0 ? "add another" : "the newest"],
    ...others.map((run) => [run.run_id, `${run.run_id} · ${time(run.started_at)}`]),
  ];
  const slider = { type: "range", id: "smoothing", max: 0.98, step: 0.02, value: settings.smoothing };
  await refresh();
  store.addEventListener("live", refresh, { signal });
  const hasRun = others.length + ids.length > 0 || store.streams.some((name) => store.stream(name).run_id);
  return [
    hasRun &&
      el(
        "div",
        { class: "controls" },
        picker("run-choice", "Run", options, "", (id) => {
          location.hash = route.href({ run: [...ids, id] });
        }),
        choice(
          "scale",
          "Loss axis",
          [
            ["linear", "linear"],
            ["log", "logarithmic"],
          ],
          settings.scale,
          set("scale"),
        ),
        choice(
          "x",
          "Per",
          [
            ["epoch", "epoch"],
            ["step", "step"],
          ],
          settings.x,
          set("x"),
        ),
        el(
          "label",
          { class: "control" },
          "Smoothing",
          el("input", { ...slider, oninput: ({ target }) => set("smoothing")(target.value) }),
        ),
      ),
    panels.map(({ node }) => node),
  ];
}

/** A stream with its runs, each in its colour; `refresh` applies the settings and follows an active run. */
function panel(store, name, ids, settings, leave) {
  const [heads, grid, charts] = [el("div"), el("div", { class: "charts" }), new Map()];
  const { title } = store.stream(name);
  const epochs = fold("Figures of every epoch", el("div"));
  let listed;
  const list = (runs) => {
    // A table that is drawn again loses its scroll position.
    const before = listed;
    listed = runs.map(({ id, history }) => `${id} ${history.length}`).join();
    const isNews = listed !== before;
    if (isNews)
      fill(
        epochs.lastChild,
        runs.map(({ id, history: items }) =>
          block(
            id,
            dataTable({
              id: `epochs-${name}-${id}`,
              label: `Epochs of ${title}, ${id}`,
              columns: FIGURES,
              items,
            }),
          ),
        ),
      );
    epochs.hidden = !runs.some(({ history }) => history.length > 0);
  };
  const show = (spec) => {
    if (charts.has(spec.title)) charts.get(spec.title).update(spec);
    else grid.append(charts.set(spec.title, lineChart(spec)).get(spec.title).node);
  };
  const refresh = async () => {
    const newest = store.stream(name).run_id;
    const asked = ids.length > 0 ? ids : [newest].filter(Boolean);
    const found = await Promise.all(
      asked.map((id) => store.run(id, name).catch(({ message }) => ({ message }))),
    );
    const bare = { history: [], step_history: [] };
    const all = found.map((run, at) => run && { ...bare, ...run, id: asked[at], colour: colourOf(at) });
    const runs = all.filter((run) => run && !run.message);
    fill(
      heads,
      all.map((run) => run && head(run, leave(run.id))),
      !newest && advice("Not trained yet", `landfall train ${name}`, "starts a run"),
      newest && !all.some(Boolean) && quiet("None of these runs trained this stream."),
    );
    const specs = MEASURES.map((measure) => specOf(measure, runs, settings, title));
    specs.filter(({ curves }) => curves.length > 0).forEach(show);
    list(runs);
  };
  return { refresh, node: card(title, null, heads, grid, epochs) };
}

function head(run, leave) {
  if (run.message) return warning(`${run.id}: ${run.message} `, leave);
  const gap = gapOf(run);
  const now = [
    run.epochs > 0 && `epoch ${run.epoch} of ${run.epochs}`,
    run.state === "running" && `${duration(run.eta_seconds)} left`,
    run.best && `best validation loss ${figure(run.best.val_loss)} in epoch ${run.best.epoch}`,
    isNumber(run.windows_per_second) && `${figure(run.windows_per_second)} windows/s`,
    isNumber(run.memory_mb) && mebibytes(run.memory_mb),
    run.hardware,
    run.reason,
  ];
  return [
    el(
      "div",
      { class: "run" },
      dot(run.colour),
      el("b", {}, run.id),
      leave,
      badge(run.state),
      quiet(now.filter(Boolean).join(" · ")),
    ),
    gap &&
      warning(
        `The loss is NaN or infinite, first in ${gap.step ? `step ${gap.step}` : `epoch ${gap.epoch}`}`,
        run.nan_steps > 0 && `; ${run.nan_steps} steps in total`,
        "; a lower training.learning_rate often helps.",
      ),
    run.recoveries > 0 &&
      warning(
        `The loss or its gradient was NaN or infinite ${run.recoveries} times. The step was rolled back, `,
        "and the run continued with a higher precision or a lower learning rate. The run folder lists the files and rows of that step.",
      ),
    run.collapsed && warning("The model has collapsed: its training loss was constant or diverged."),
  ];
}

const gapOf = ({ history, step_history: steps }) =>
  steps.find(({ loss }) => !isNumber(loss)) ?? history.find(({ train_loss: loss }) => !isNumber(loss));

function specOf(measure, runs, { scale, x, smoothing }, stream) {
  const isLoss = measure.title === "Loss";
  const place = x === "step" ? stepOf : epochOf;
  const curves = runs.flatMap((run) =>
    partsOf(measure, run, x === "step").flatMap(([name, points, key, dash]) =>
      smoothed(
        {
          name: runs.length === 1 ? name : isLoss ? `${run.id} ${name}` : run.id,
          colour: run.colour,
          dash,
          x: points.map((point) => place(run, point)),
          y: points.map((point) => (measure.isPercent ? 100 * point[key] : (point[key] ?? null))),
        },
        Number(smoothing),
      ),
    ),
  );
  const best = ({ best: { epoch, val_loss: y }, ...run }) => ({
    x: place(run, { epoch }),
    y,
    colour: run.colour,
    label: `best: epoch ${epoch}`,
  });
  const gap = (run) => ({ x: place(run, gapOf(run)), colour: "bad", label: "not finite" });
  const lengths = runs.map((run) => `run ${run.id} with ${run.history.length} epochs`).join(", ");
  return {
    title: measure.title,
    of: stream,
    curves,
    height: isLoss ? 340 : 200,
    isWide: isLoss,
    summary: `${measure.title} of ${stream} per ${x}: ${lengths}`,
    x: { label: x, isWhole: true },
    y: { label: measure.label, isLog: isLoss && scale === "log", isPercent: measure.isPercent },
    points: isLoss ? runs.filter((run) => isNumber(run.best?.val_loss)).map(best) : [],
    lines: isLoss ? runs.filter(gapOf).map(gap) : [],
  };
}

const perEpoch = (run) => run.steps / run.epochs || 1;
const epochOf = (run, point) => (point.step ? point.step / perEpoch(run) : point.epoch);
const stepOf = (run, point) => point.step ?? point.epoch * perEpoch(run);

/** The curves of a measure, as name, points, field and dash: of steps if requested or if there are no epochs. */
function partsOf({ title, step, epoch, validation }, { history, step_history: steps }, isPerStep) {
  const isFine = step && (isPerStep || !epoch || history.length === 0);
  const [points, key] = isFine ? [steps, step] : [history, epoch];
  // A non-finite loss is a gap in the curve; other values are not recorded at every step.
  const parts = [
    [validation ? "training" : title, points.filter((point) => validation || isNumber(point[key])), key],
    ["validation", history, validation, [6, 4]],
  ];
  return parts.filter(([, all, field]) => all.some((point) => isNumber(point[field])));
}

/** The curve, or its exponential mean over the faint raw curve. A validation loss (dashed) is already a mean, so it is
 * not smoothed. */
function smoothed(curve, weight) {
  if (!weight || curve.dash) return [curve];
  let [mean, norm] = [0, 0];
  const y = curve.y.map((value) => {
    if (!isNumber(value)) return null;
    [mean, norm] = [weight * mean + (1 - weight) * value, weight * norm + 1 - weight];
    return mean / norm;
  });
  return [
    { ...curve, name: `${curve.name}, raw`, isFaint: true, width: 1 },
    { ...curve, y },
  ];
}
