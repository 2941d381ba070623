/** Starts the page: loads the state, shows the view named by the address, and reports whether the server responds. */
import { badge, code, el, fill, prose, quiet, seal, warning, wordOf } from "./dom.mjs";
import { ZONE, time } from "./format.mjs";
import { Route, href } from "./route.mjs";
import { Store } from "./store.mjs";
import { anomalies } from "./views/anomalies.mjs";
import { data } from "./views/data.mjs";
import { device } from "./views/device.mjs";
import { fleet } from "./views/fleet.mjs";
import { migration } from "./views/migration.mjs";
import { monitor } from "./views/monitor.mjs";
import { overview } from "./views/overview.mjs";
import { runs } from "./views/runs.mjs";
import { training } from "./views/training.mjs";

/** The views, in order, by their name in the address: functions `(store, route, signal)` that return nodes or a promise
 * of them. A view that follows a run listens to `live` events of the store; it is drawn again for other changes. */
const VIEWS = { overview, fleet, monitor, training, runs, data, anomalies, device, migration };

const part = (id) => document.getElementById(id);
const main = part("view");
let [drawing, address] = [new AbortController(), null];

async function draw(store) {
  drawing.abort();
  drawing = new AbortController();
  const { signal } = drawing;
  const route = new Route();
  const named = location.hash || !store.state.fleet ? route.view : "fleet";
  const name = Object.hasOwn(VIEWS, named) ? named : "overview";
  main.setAttribute("aria-busy", "true");
  const content = await (async () => VIEWS[name](store, route, signal))().catch((error) => {
    // Unexpected data in one view must not affect the other views.
    if (!error.kind) console.error(error);
    return warning(`This view could not be drawn: ${error.message}`);
  });
  // A slow response to an earlier click must not replace a newer view.
  if (signal.aborted) return;
  main.dataset.view = name;
  fill(main, el("h1", { class: "unseen" }, wordOf(name)), content);
  drawFrame(store, name);
  if (address !== location.hash) (part("aim") ?? document.body).scrollIntoView();
  address = location.hash;
  main.setAttribute("aria-busy", "false");
}

/** The frame of a view: verdict, navigation, time of the export, and state of the server. */
function drawFrame(store, shown) {
  showVerdict(store);
  const isThere = { fleet: Boolean(store.state.fleet), monitor: Object.keys(store.monitors).length > 0 };
  fill(
    part("views"),
    Object.keys(VIEWS)
      .filter((name) => isThere[name] ?? true)
      .map((name) =>
        el(
          "a",
          { href: href(name), id: `to-${name}`, "aria-current": name === shown && "page" },
          wordOf(name),
        ),
      ),
  );
  fill(part("stamp"), `Exported ${time(store.state.generated_at)} · times in ${ZONE}`);
  fill(
    part("contact"),
    store.lost &&
      warning(
        "The server does not respond. This page shows its last state. ",
        code("landfall dashboard"),
        " starts it again.",
      ),
  );
}

function showVerdict({ pipeline: { verdict } }) {
  document.title = `${wordOf(main.dataset.view)} · ${verdict?.title ?? "Landfall"} · Landfall training dashboard`;
  fill(
    part("verdict"),
    verdict && [seal(verdict.state), el("b", {}, verdict.title), quiet(prose(verdict.detail))],
  );
}

async function start() {
  const store = await Store.open();
  const redraw = () => draw(store);
  await redraw();
  addEventListener("hashchange", redraw);
  for (const event of ["state", "contact"]) store.addEventListener(event, redraw);
  store.addEventListener("live", () => showVerdict(store));
}

start().catch((error) => {
  if (!error.kind) console.error(error);
  const isEmpty = error.kind === "empty";
  const command = error.kind === "offline" ? "landfall dashboard" : "landfall pipeline";
  fill(
    main,
    el(
      "div",
      { class: "card notice", role: "alert" },
      badge(isEmpty ? "not started" : "failed"),
      el("h1", {}, isEmpty ? "Nothing has been exported yet" : "The exported state cannot be shown"),
      el("p", {}, "Run ", code(command), " in the workspace, then reload this page."),
      quiet(error.message),
    ),
  );
  main.setAttribute("aria-busy", "false");
});
