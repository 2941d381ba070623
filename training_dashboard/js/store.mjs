/** The data of the page: the exported documents, and the live documents of active runs. */
import { time } from "./format.mjs";

const [SCHEMA_VERSION, STATE] = [1, "dashboard-state.json"];
const [TICK_MS, TICKS_PER_STATE, SOON_MS, SILENCE_MS] = [2000, 5, 500, 120_000];

/** The live state of a run; a running one is silent after a long time without updates. */
const withSilence = (live) =>
  live?.state === "running" && Date.now() - Date.parse(live.updated_at) > SILENCE_MS
    ? { ...live, state: "silent" }
    : live;

/** Why a document cannot be shown; `kind` is `empty`, `damaged`, `version` or `offline`. */
const fault = (kind, path, what) => Object.assign(new Error(`data/${path} ${what}.`), { kind });

/** The documents of a report in a single file; null if the page is served. */
const report = JSON.parse(document.getElementById("landfall-data")?.textContent ?? "null");

/** The text of a document, null if there is none; the browser revalidates its cached copy. */
async function fetchText(path) {
  const response = await fetch(`data/${path}`, { cache: "no-cache" }).catch(() => {
    throw fault("offline", path, "could not be fetched: the server does not respond");
  });
  if (response.status === 404 || response.status === 204) return null;
  if (!response.ok) throw fault("offline", path, `could not be fetched: status ${response.status}`);
  return response.text();
}

function parse(path, text) {
  if (text === null) throw fault("empty", path, "does not exist");
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw fault("damaged", path, "is not valid JSON");
  }
  const { schema_version: version = "none" } = value ?? {};
  if (version >= 1 && version <= SCHEMA_VERSION) return value;
  throw fault("version", path, `has schema version ${version}; this page reads ${SCHEMA_VERSION}`);
}

/** Events: `state` (anything may have changed), `live` (a run made progress), `monitor` (a monitor has new data),
 * `contact` (the server stopped or returned). */
export class Store extends EventTarget {
  state = null;
  problems = [];
  index = { runs: [] };
  /** Why the server does not respond; null if it does. */
  lost = null;
  /** The last document of each monitor, by stream. */
  monitors = {};
  #live = {};
  #texts = new Map();
  #documents = new Map();

  /** Throws if there is no state to show; the error has a `kind`. */
  static async open() {
    const store = new Store();
    await store.#take(
      report ? await store.document(STATE) : ((await store.#news(STATE)) ?? parse(STATE, null)),
    );
    if (!report) await store.#watch();
    return store;
  }

  /** Whether a server can store annotations; a report in a single file has no server. */
  get isServed() {
    return !report;
  }

  /** The address of a file of the workspace; null if it is unknown. */
  addressOf(file) {
    if (!report) return file;
    return report.workspace ? report.workspace + file : null;
  }

  /** Sends an annotation to the server; returns the reason of a failure, or null. */
  async annotate(stream, { recording, start_seconds, end_seconds }, note) {
    const body = JSON.stringify({ recording, start_seconds, end_seconds, ...note });
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(`annotations/${stream}`, { method: "POST", headers, body }).catch(
      () => null,
    );
    if (!response?.ok)
      return response ? `the server returned status ${response.status}` : "the server does not respond";
    await this.#renew(true);
    return null;
  }

  /** The streams that are in use or have a run. */
  get streams() {
    return this.allStreams.filter((name) => this.isInUse(name) || this.state.streams[name].run_id);
  }

  get allStreams() {
    return Object.keys(this.state.streams ?? {});
  }

  isInUse(name) {
    return this.state.streams[name].light?.state !== "not in use";
  }

  /** A document that changes only with a new export; loaded once. */
  document(path) {
    const load = async () => report?.[path] ?? parse(path, report ? null : await fetchText(path));
    if (!this.#documents.has(path)) this.#documents.set(path, load());
    return this.#documents.get(path);
  }

  /** All data of a run; only runs in the index are requested. */
  async record(id) {
    const path = `runs/${encodeURIComponent(id)}.json`;
    return this.index.runs.some((run) => run.run_id === id) ? this.document(path) : parse(path, null);
  }

  /** A stream as exported, or from the live document of its run if that is newer. */
  stream(name) {
    const stated = this.state.streams[name];
    const live = withSilence(this.#live[name]);
    if (!live || Date.parse(live.updated_at) < Date.parse(stated.updated_at)) return stated;
    return { ...stated, ...live, checkpoint: stated.checkpoint };
  }

  /** What the pipeline has reported since the export; null if nothing. */
  get #livePipeline() {
    const live = withSilence(this.#live.pipeline);
    return Date.parse(live?.updated_at) > Date.parse(this.state.generated_at) ? live : null;
  }

  /** Whether a pipeline runs, which scores and validates after the training. */
  get isPipelineRunning() {
    return this.#livePipeline?.state === "running";
  }

  /** Verdict and stages as exported, or as the running pipeline reports them. */
  get pipeline() {
    const { verdict, pipeline: stages = [] } = this.state;
    const live = this.#livePipeline;
    if (!live) return this.#withTraining(verdict, stages);
    const detail = `No update since ${time(live.updated_at)}; landfall export shows its results.`;
    if (live.state === "silent")
      return { verdict: { state: "silent", title: "Pipeline silent", detail }, stages };
    const now = (node) => ({ ...node, steps: null, ...live.stages.find(({ id }) => id === node.id) });
    return { verdict: live.verdict ?? verdict, stages: stages.map(now) };
  }

  /** Verdict and stages while a training runs that no pipeline started. */
  #withTraining(verdict, stages) {
    const running = this.streams.map((name) => this.stream(name)).filter(({ state }) => state === "running");
    if (running.length === 0) return { verdict, stages };
    const detail = running.map(({ title }) => `${title} running`).join(", ");
    const others = stages.filter(({ id }) => id !== "train");
    const hasFailed = others.some(({ state }) => state === "failed");
    const now = { state: "running", title: "Running", detail: `Train: ${detail}` };
    const renewed = (node) => {
      if (node.id === "train") return { ...node, state: "running", detail };
      const isUnread = node.id === "data" && node.state === "waiting";
      return isUnread ? { ...node, state: "done", detail: "read by the training, not checked" } : node;
    };
    return { verdict: hasFailed ? verdict : now, stages: stages.map(renewed) };
  }

  /** The record of one stream in a run, or its live document if that is newer; null if there is none. */
  async run(id, name) {
    const live = this.#live[name]?.run_id === id ? withSilence(this.#live[name]) : null;
    const record = await this.record(id).catch((error) => {
      if (!live) throw error;
    });
    const run = record?.streams?.[name] ?? null;
    return live && !(run?.step > live.step) ? { ...run, ...live } : run;
  }

  async #take(state) {
    this.#documents.clear();
    const history = state.runs?.exported ? this.document("runs/index.json") : Promise.resolve({});
    const index = await history.catch(({ message }) => ({ message }));
    const problems = index.message ? [{ path: "", message: index.message }] : [];
    Object.assign(this, {
      state,
      index: { runs: [], ...index },
      problems: [...(state.problems ?? []), ...problems],
    });
    // Documents of other views are fetched in advance; a failure is reported to the view that needs them.
    const soon = Object.values(state.streams ?? {})
      .flatMap((one) => [one.quality_file, one.series])
      .filter(Boolean);
    setTimeout(() => {
      for (const path of soon) this.document(path).catch(() => null);
    }, SOON_MS);
  }

  async #watch() {
    let tick = 0;
    const renew = (everything) => document.visibilityState === "visible" && this.#renew(everything);
    await this.#renew(true);
    setInterval(() => renew(Boolean(this.lost) || ++tick % TICKS_PER_STATE === 0), TICK_MS);
    document.addEventListener("visibilitychange", () => renew(true));
  }

  /** The page keeps its content if the server does not respond; a damaged document is requested again. */
  async #renew(everything) {
    const lost = await this.#look(everything).then(
      () => null,
      (error) => (error.kind === "offline" ? error : null),
    );
    const isNews = Boolean(this.lost) !== Boolean(lost);
    this.lost = lost;
    if (isNews) this.dispatchEvent(new Event("contact"));
  }

  async #look(everything) {
    const followed = [...this.streams, "pipeline"].filter(
      (name) => everything || this.#live[name]?.state === "running",
    );
    const found = await Promise.all(followed.map((name) => this.#follow(name)));
    const watched = await this.#watched(everything);
    // A run that has started or ended may have been exported.
    const state = everything || found.includes("state") ? await this.#news(STATE) : null;
    if (state) await this.#take(state);
    // A run can become silent without a new document.
    const isLive =
      found.includes("live") || followed.some((name) => withSilence(this.#live[name])?.state === "silent");
    if (watched === "monitor") this.dispatchEvent(new Event("monitor"));
    if (state || watched === "state" || found.includes("state")) this.dispatchEvent(new Event("state"));
    else if (isLive) this.dispatchEvent(new Event("live"));
  }

  /** The name of the event for changes of active runs, if there are any. */
  async #follow(name) {
    const [old, live] = [this.#live[name], await this.#news(`live/${name}.json`)];
    if (!live) return null;
    this.#live[name] = live;
    return old?.run_id === live.run_id && old.state === live.state ? "live" : "state";
  }

  /** The name of the event for new data of monitors: `state` for the first monitor, null without new data. */
  async #watched(everything) {
    const watched = everything ? this.allStreams : Object.keys(this.monitors);
    const isFirst = Object.keys(this.monitors).length === 0;
    const before = { ...this.monitors };
    for (const name of watched) {
      const monitor = (await this.#news(`live/watch-${name}.json`)) ?? this.monitors[name];
      if (monitor) this.monitors[name] = withSilence(monitor);
    }
    const isNew = Object.keys(this.monitors).some((name) => this.monitors[name] !== before[name]);
    return isNew ? (isFirst ? "state" : "monitor") : null;
  }

  /** A document that exists and has changed since the last request, otherwise null. */
  async #news(path) {
    const text = await fetchText(path);
    if (text === null || text === this.#texts.get(path)) return null;
    this.#texts.set(path, text);
    return parse(path, text);
  }
}
