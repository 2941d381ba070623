/** How the whole stands: the pipeline as a picture, a card per stream, the checklist, and what could not be read. */
import { advice, badge, block, card, code, el, facts, fill, finding, fold, meter } from "../dom.mjs";
import { quiet, seal, small, toneOf, warning, wordOf } from "../dom.mjs";
import { count, duration, faults, figure, hardware, isNumber, plural, time } from "../format.mjs";
import { href } from "../route.mjs";

export function overview(store, route, signal) {
  const [stages, cards] = [
    el("ol", { class: "stages", "aria-label": "Pipeline" }),
    el("div", { class: "cards" }),
  ];
  const follow = () => {
    fill(stages, store.pipeline.stages.map(stage));
    fill(
      cards,
      store.streams.map((name) => streamCard(name, store.stream(name))),
    );
  };
  follow();
  store.addEventListener("live", follow, { signal });
  const { checklist } = store.state;
  const unread = store.problems.map(({ path, message }) => finding("warning", code(path), ` ${message}`));
  return [
    stages,
    cards,
    card("Validation checklist", checklist && quiet(time(checklist.generated_at)), checks(checklist)),
    unread.length > 0 && card("Unreadable inputs", null, el("ul", { class: "findings" }, unread)),
  ];
}

const stage = ({ id, title, state, detail, steps, view }) =>
  el(
    "li",
    { class: `${toneOf(state)} ${id}` },
    el(
      "a",
      { href: href(view ?? "overview"), id: `stage-${id}` },
      seal(state),
      el("b", {}, title),
      el("span", { class: "state" }, wordOf(state)),
      small(detail),
      steps && small(steps),
    ),
  );

function streamCard(name, stream) {
  const { state, title, subject, reason } = stream;
  return card(
    title,
    badge(state),
    quiet(subject),
    reason && el("p", { class: `reason ${toneOf(state)}` }, reason),
    state === "silent" && warning(`No sign of life since ${time(stream.updated_at)}.`),
    stream.run_id ? run(name, stream) : advice("Not trained yet", `make train-${name}`, "starts a run"),
    block("Anomalies", scoring(name, stream)),
    block("Data", quality(name, stream)),
  );
}

function run(name, stream) {
  const { state, best, checkpoint, progress } = stream;
  const left =
    state === "running" && isNumber(stream.eta_seconds) && `, ${duration(stream.eta_seconds)} left`;
  const maker = checkpoint?.run_id ?? stream.run_id;
  const resume = `make train-${name} ARGS="training.resume=auto"`;
  return [
    meter(`Training progress of ${stream.title}`, progress, toneOf(state)),
    el(
      "p",
      { class: "between" },
      el("span", {}, `Epoch ${count(stream.epoch)} of ${count(stream.epochs)}`),
      el("span", {}, `${duration(stream.duration_seconds)} · ${Math.round(100 * progress)} %`, left),
    ),
    ["stopped", "failed"].includes(state) && advice("Its checkpoint can go on", resume, "resumes it"),
    facts([
      ["Best validation loss", best && [el("b", {}, figure(best.val_loss)), ` in epoch ${best.epoch}`]],
      [
        "Skill",
        isNumber(best?.skill) && [
          el("b", {}, figure(best.skill)),
          " over the mean training input (1 is perfect)",
        ],
      ],
      ["Run", el("a", { href: href("training", { run: stream.run_id }), id: `run-${name}` }, stream.run_id)],
      ["Last sign of life", time(stream.updated_at)],
      ["Hardware", hardware(stream.device)],
      [
        "Weights in use",
        checkpoint && [
          code(checkpoint.path),
          !checkpoint.present && warning("the file is missing"),
          maker !== stream.run_id && warning(`from another run: ${maker}`),
        ],
      ],
    ]),
  ];
}

function scoring(stream, { scores, detections, checkpoint }) {
  if (!scores)
    return advice("Nothing scored yet", checkpoint ? "make score" : "make validate", "finds the events");
  const worst = detections?.events?.[0];
  const link = { href: href("anomalies", { stream }), id: `events-${stream}` };
  return [
    el(
      "p",
      {},
      el("a", link, plural(scores.events, "event")),
      ` in ${plural(scores.recordings, "recording")}, from ${plural(scores.scores, "score")}`,
    ),
    scores.detection &&
      facts(faults(scores.detection).map(([term, value, note]) => [term, [el("b", {}, value), `, ${note}`]])),
    worst && quiet(`The worst: ${worst.sentence}.`),
  ];
}

function quality(name, { quality: found }) {
  if (!found) return advice("No file checked yet", "make validate", "checks every data file");
  const { files, kept, dropped, warned } = found;
  return el(
    "p",
    {},
    el("a", { href: href("data"), id: `data-${name}` }, `${kept} of ${plural(files, "file")} kept`),
    `, ${dropped} dropped, ${warned} with warnings`,
  );
}

/** A group in which nothing failed or warned is folded. */
function checks(found) {
  if (!found) return advice("Nothing validated yet", "make validate", "runs the checks");
  return [...new Set(found.items.map(({ group }) => group))].map((name) => {
    const items = found.items.filter(({ group }) => group === name);
    const lines = items.map(({ status, title, detail, hint }) =>
      finding(status, title, small(detail), hint && el("p", {}, el("b", {}, "Way out: "), hint)),
    );
    const list = fold(
      `${name} ${found.groups?.[name] ?? ""}: ${tally(items)}`,
      el("ul", { class: "findings" }, lines),
    );
    list.open = items.some(({ status }) => status === "FAIL" || status === "WARN");
    return list;
  });
}

const tally = (items) =>
  Object.entries({ PASS: "passed", FAIL: "failed", WARN: "warned", SKIP: "skipped" })
    .map(([status, word]) => [items.filter((item) => item.status === status).length, word])
    .filter(([number]) => number > 0)
    .map((pair) => pair.join(" "))
    .join(", ");
