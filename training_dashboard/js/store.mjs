/** What the page knows: the exported state, the index of runs, and the run that is selected. */

export const SCHEMA_VERSION = 1;
const DATA = "data/";
const HASH = "#run=";

/** An input the page cannot work with; `kind` is `empty`, `damaged`, `version` or `offline`. */
export class LoadError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

export async function loadJson(path) {
  let response;
  try {
    response = await fetch(DATA + path, { cache: "no-store" });
  } catch {
    throw new LoadError("offline", `${DATA}${path} could not be fetched: the server does not answer.`);
  }
  if (response.status === 404) throw new LoadError("empty", `${DATA}${path} does not exist.`);
  if (!response.ok) throw new LoadError("offline", `${DATA}${path}: the server answers ${response.status}.`);
  let value;
  try {
    value = await response.json();
  } catch {
    throw new LoadError("damaged", `${DATA}${path} is not valid JSON.`);
  }
  if (value?.schema_version !== SCHEMA_VERSION) {
    const found = JSON.stringify(value?.schema_version) ?? "none";
    throw new LoadError("version", `${DATA}${path} has schema version ${found}; this page reads ${SCHEMA_VERSION}.`);
  }
  return value;
}

/** Loads the state and the index; `selection` events tell views that another run is shown. */
export class Store extends EventTarget {
  static async load() {
    const state = await loadJson("dashboard-state.json");
    const store = new Store(state);
    if (state.runs?.exported) {
      try {
        store.index = await loadJson("runs/index.json");
      } catch (error) {
        store.notes.push(error.message);
      }
    }
    addEventListener("hashchange", () => store.followHash());
    await store.followHash();
    return store;
  }

  constructor(state) {
    super();
    this.state = state;
    this.index = { runs: [] };
    this.notes = [];
    this.records = new Map();
    /** runId is null for "the newest run of each stream"; streams: name → {runId, run, problem}. */
    this.selection = { runId: null, streams: {}, note: null };
  }

  streamTitle(name) {
    return this.state.streams?.[name]?.title ?? name;
  }

  /** Shows a run and makes it the address of the page; null shows the newest run of each stream. */
  select(runId) {
    const hash = runId === null ? "" : HASH + encodeURIComponent(runId);
    history.pushState(null, "", location.pathname + location.search + hash);
    return this.followHash();
  }

  async followHash() {
    const wanted = requestedRun();
    const known = this.index.runs.some((entry) => entry.run_id === wanted);
    const isLost = wanted !== null && !known;
    const note = isLost ? `There is no run ${wanted} in the history; the newest runs are shown.` : null;
    const runId = known ? wanted : null;
    this.wanted = runId;
    const streams = {};
    for (const [name, id] of this.#shownRuns(runId)) streams[name] = await this.#stream(name, id);
    // A slower answer to an earlier click must not replace the newer one.
    if (this.wanted !== runId) return;
    this.selection = { runId, streams, note };
    this.dispatchEvent(new Event("selection"));
  }

  #shownRuns(runId) {
    if (runId === null) {
      return Object.entries(this.state.streams ?? {}).map(([name, stream]) => [name, stream.run_id]);
    }
    const entry = this.index.runs.find((candidate) => candidate.run_id === runId);
    return Object.keys(entry.streams ?? {}).map((name) => [name, runId]);
  }

  async #stream(name, runId) {
    if (!runId) return { runId: null, run: null, problem: "This stream has not been trained yet." };
    if (!this.index.runs.some((entry) => entry.run_id === runId)) {
      return { runId, run: null, problem: "The run history was not exported." };
    }
    if (!this.records.has(runId)) this.records.set(runId, loadJson(`runs/${encodeURIComponent(runId)}.json`));
    try {
      const record = await this.records.get(runId);
      const run = record.streams?.[name] ?? null;
      return { runId, run, problem: run ? null : "This run did not train the stream." };
    } catch (error) {
      this.records.delete(runId);
      return { runId, run: null, problem: error.message };
    }
  }
}

function requestedRun() {
  if (!location.hash.startsWith(HASH)) return null;
  const text = location.hash.slice(HASH.length);
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
