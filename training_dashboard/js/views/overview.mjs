/** The machines first: a card with a light for each stream. Then the software: pipeline, training, checks, problems. */
import { advice, badge, block, card, code, el, facts, fill, finding, fold, light, meter } from "../dom.mjs";
import { file, prose, quiet, seal, small, toneOf, warning, wordOf } from "../dom.mjs";
import { COMPONENTS, clock, count, duration, faults, figure, isNumber, plural } from "../format.mjs";
import { rareness, severity, share, statedRate, time } from "../format.mjs";
import { href } from "../route.mjs";
import { sparkline } from "../sparkline.mjs";

export function overview(store, _route, signal) {
  const [machines, stages, runs] = [
    el("div", { class: "cards" }),
    el("ol", { class: "stages", "aria-label": "Pipeline" }),
    el("div", { class: "cards" }),
  ];
  const { streams } = store.state;
  const drawMachines = () =>
    fill(
      machines,
      store.allStreams.map((name) => machineCard(store, name, streams[name])),
    );
  drawMachines();
  const follow = () => {
    // Only the card of a machine without scores follows its training.
    if (store.allStreams.some((name) => !streams[name].scores)) drawMachines();
    fill(
      stages,
      store.pipeline.stages.map((each) => stage(each, store.isPipelineRunning)),
    );
    fill(
      runs,
      store.streams.filter((name) => store.isInUse(name)).map((name) => runCard(store, name)),
    );
  };
  follow();
  store.addEventListener("live", follow, { signal });
  store.addEventListener("monitor", drawMachines, { signal });
  const { checklist } = store.state;
  const [validation, pipeline] = [
    card("Validation checklist", checklist && quiet(time(checklist.generated_at)), checks(checklist)),
    card("Pipeline", null, stages),
  ];
  const unread = store.problems.map(({ path, message }) => finding("warning", code(path), ` ${message}`));
  return [
    el("h2", { class: "section" }, "Machines"),
    machines,
    el("h2", { class: "section" }, "Software"),
    unread.length > 0 && card("Unreadable inputs", null, el("ul", { class: "findings" }, unread)),
    // The checklist of an earlier run is less important than a running pipeline.
    store.isPipelineRunning ? [pipeline, validation] : [validation, pipeline],
    runs,
  ];
}

/** A stage waits for its turn only while a pipeline runs. */
const stage = ({ id, title, state, detail, steps, view }, isPipelineRunning) =>
  el(
    "li",
    { class: `${toneOf(state)} ${id}` },
    el(
      "a",
      { href: href(view ?? "overview"), id: `stage-${id}` },
      seal(state),
      el("b", {}, title),
      el(
        "span",
        { class: "state" },
        wordOf(state === "waiting" && !isPipelineRunning ? "not started" : state),
      ),
      small(prose(detail)),
      steps && small(steps),
    ),
  );

// ------------------------------------------------------------------------------------------------------------ machines
function machineCard(store, name, stream) {
  const { scores, detections, checkpoint, subject, title } = stream;
  const { state = "no scores", detail = "", warnings = [] } = stream.light ?? {};
  const worst = detections?.events?.[0];
  if (!store.isInUse(name))
    return card(wordOf(subject), light(state), el("p", { class: "reason" }, prose(detail)));
  const training = !checkpoint && !scores && firstTraining(store, name);
  const monitor = store.monitors[name];
  const open = monitor?.events.filter((event) => event.state === "open") ?? [];
  return card(
    wordOf(subject),
    light(open.length > 0 ? "open events" : state),
    monitor && monitored(name, monitor, open),
    el("p", { class: `reason ${toneOf(state)}` }, training || prose(detail)),
    warnings.map((text) => warning(text)),
    !scores && nextStep(store, training, checkpoint),
    worst && block("Worst event", worstEvent(store, name, worst, scores)),
    scores && block("Detection", detection(name, scores, detections)),
    block("Data", quality(name, stream)),
    (checkpoint || scores) && small(scoredBy(title, scores)),
  );
}

/** The open events of a monitor are not those of the scores, and newer. */
function monitored(name, { state }, open) {
  const worst =
    open.length > 0 &&
    `, the worst with ${severity(Math.max(...open.map((event) => event.severity)))} the threshold`;
  const link = el("a", { href: href("monitor"), id: `monitor-${name}` }, plural(open.length, "open event"));
  return el(
    "p",
    { class: `reason ${open.length > 0 ? "bad" : "idle"}` },
    `Monitor ${state}: `,
    link,
    worst,
    ".",
  );
}

/** What scored, and when: the model, or control charts alone. */
const scoredBy = (title, scores) =>
  scores
    ? `${scores.run_id ? `Model ${title}` : "Control charts alone"}, scored ${time(scores.scored_at)}`
    : `Model ${title}`;

/** How far the first training of a machine is; null if none runs. */
function firstTraining(store, name) {
  const { state, progress, eta_seconds: left } = store.stream(name);
  if (state !== "running") return null;
  const rest = isNumber(left) ? `, ${duration(left)} left` : "";
  return `The first model is being trained: ${Math.round(100 * progress)} %${rest}.`;
}

function nextStep(store, training, checkpoint) {
  if (store.isPipelineRunning)
    return quiet("Nothing scored yet: the running pipeline scores after the training.");
  if (training) return advice("Nothing scored yet", "landfall score", "finds the events after the training");
  return advice(
    "Nothing scored yet",
    checkpoint ? "landfall score" : "landfall pipeline",
    "finds the events",
  );
}

function worstEvent(store, stream, event, scores) {
  const [picture, by] = [el("div", { class: "spark" }), el("span")];
  if (event.detail) {
    const show = ({ score, component, component_share: most }) => {
      if (score) fill(picture, sparkline(score, event, `Score around event ${event.id}`));
      if (component) fill(by, `${COMPONENTS[component]}, ${share(most)} of the score`);
    };
    store
      .document(event.detail)
      .then(show)
      .catch(() => fill(picture, small("Its document cannot be read.")));
  }
  const [top] = event.channels ?? [];
  const link = { href: href("anomalies", { stream, event: event.id }), id: `worst-${stream}` };
  const begins = event.start
    ? clock(event.start)
    : `second ${event.start_seconds?.toFixed(2)} of ${event.recording}`;
  return [
    picture,
    facts(
      [
        ["Begins", [el("a", link, begins), ` and lasts ${duration(event.duration_seconds)}`]],
        ["Peak", `${severity(event.severity)} the threshold`],
        ["Top channel", top && `${top.name}, ${share(top.share)} of the error`],
        ["Raised by", event.detail && by],
        ["In normal operation", rareness(scores, event.severity)],
      ],
      "facts single",
    ),
  ];
}

function detection(stream, scores, detections) {
  const link = { href: href("anomalies", { stream }), id: `events-${stream}` };
  const labelled = scores.detection ? faults(scores.detection) : [];
  return [
    el(
      "p",
      {},
      el("a", link, plural(scores.events, "event")),
      ` in ${plural(scores.recordings, "recording")}, from ${plural(scores.scores, "score")}`,
    ),
    facts(
      [
        ["False alarms", statedRate(scores.threshold) ?? detections?.false_alarms],
        ...labelled.map(([term, value, note]) => [term, [el("b", {}, value), `, ${note}`]]),
      ],
      "facts single",
    ),
  ];
}

function quality(name, { quality: found }) {
  if (!found) return advice("No file checked yet", "landfall quality", "checks every data file");
  const { files, kept, dropped, warned } = found;
  return el(
    "p",
    {},
    el("a", { href: href("data"), id: `data-${name}` }, `${kept} of ${plural(files, "file")} kept`),
    `, ${dropped} dropped, ${warned} with warnings`,
  );
}

// ------------------------------------------------------------------------------------------------------------ software
function runCard(store, name) {
  const stream = store.stream(name);
  const { state, title, reason } = stream;
  const shown = stream.collapsed && state === "completed" ? "attention" : state;
  return card(
    title,
    badge(shown),
    stream.collapsed &&
      warning("The model has collapsed: its check failed, or its training loss was constant or diverged."),
    reason && el("p", { class: `reason ${toneOf(state)}` }, reason),
    state === "silent" && warning(`No update since ${time(stream.updated_at)}.`),
    stream.run_id
      ? run(store, name, stream)
      : advice("Not trained yet", `landfall train ${name}`, "starts a run"),
  );
}

function run(store, name, stream) {
  const { state, best, checkpoint, progress } = stream;
  const left =
    state === "running" && isNumber(stream.eta_seconds) && `, ${duration(stream.eta_seconds)} left`;
  const maker = checkpoint?.run_id ?? stream.run_id;
  const resume = `landfall train ${name} --resume auto`;
  return [
    meter(`Training progress of ${stream.title}`, progress, toneOf(state)),
    el(
      "p",
      { class: "between" },
      el("span", {}, `Epoch ${count(stream.epoch)} of ${count(stream.epochs)}`),
      el("span", {}, `${duration(stream.duration_seconds)} · ${Math.round(100 * progress)} %`, left),
    ),
    ["stopped", "failed"].includes(state) &&
      advice("The run is not complete", resume, "resumes it from its checkpoint"),
    facts([
      ["Best validation loss", best && [el("b", {}, figure(best.val_loss)), ` in epoch ${best.epoch}`]],
      [
        "Skill",
        isNumber(best?.skill) && [
          el("b", {}, figure(best.skill)),
          " (1: perfect; 0: as good as the mean of the training data)",
        ],
      ],
      ["Run", runLink(stream.run_id, `run-${name}`)],
      ["Last update", time(stream.updated_at)],
      ["Hardware", stream.hardware],
      ["Executed notebook", stream.notebook && file(store, stream.notebook)],
      [
        "Weights in use",
        checkpoint && [
          code(checkpoint.path),
          !checkpoint.present && warning("the file is missing"),
          maker !== stream.run_id && [" of run ", runLink(maker, `maker-${name}`)],
        ],
      ],
    ]),
  ];
}

const runLink = (run, id) => el("a", { href: href("training", { run }), id }, run);

/** Failures and warnings are first; a group without any is folded. */
const URGENCY = ["FAIL", "WARN", "SKIP", "PASS"];
const urgency = (items) => Math.min(...items.map(({ status }) => URGENCY.indexOf(status)));

function checks(found) {
  if (!found) return advice("Nothing validated yet", "landfall validate", "runs the checks");
  const names = [...new Set(found.items.map(({ group }) => group))];
  const groups = names.map((name) => [name, found.items.filter(({ group }) => group === name)]);
  groups.sort(([, one], [, other]) => urgency(one) - urgency(other));
  return groups.map(([name, items]) => {
    const sorted = [...items].sort((one, other) => urgency([one]) - urgency([other]));
    const lines = sorted.map(({ status, title, detail, hint }) =>
      finding(
        status,
        title,
        small(prose(detail)),
        hint && el("p", {}, el("b", {}, "What to do: "), prose(hint)),
      ),
    );
    const list = fold(
      `${found.groups?.[name] ?? name}: ${tally(items)}`,
      el("ul", { class: "findings" }, lines),
    );
    list.open = urgency(items) < URGENCY.indexOf("SKIP");
    return list;
  });
}

const tally = (items) =>
  Object.entries({ FAIL: "failed", WARN: "warned", PASS: "passed", SKIP: "skipped" })
    .map(([status, word]) => [items.filter((item) => item.status === status).length, word])
    .filter(([number]) => number > 0)
    .map((pair) => pair.join(" "))
    .join(", ");
