/** Building blocks of the page. Text is always inserted as text, never as markup. */

const SVG = "http://www.w3.org/2000/svg";

/** `el("p", {class: "x", onclick: f}, "text", node, null)`: attributes, listeners, children; null is left out. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

export function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

export function replace(node, ...children) {
  node.replaceChildren();
  return append(node, children);
}

/** State → shape and word; the shape differs as well as the colour. */
const STATES = {
  done: ["check", "Done", "good"],
  completed: ["check", "Completed", "good"],
  PASS: ["check", "PASS", "good"],
  running: ["play", "Running", "busy"],
  attention: ["bang", "Attention", "warn"],
  stopped: ["bar", "Stopped", "warn"],
  unreadable: ["bang", "Unreadable", "warn"],
  failed: ["cross", "Failed", "bad"],
  FAIL: ["cross", "FAIL", "bad"],
  drop: ["cross", "Dropped", "bad"],
  warn: ["bang", "Warning", "warn"],
  waiting: ["dots", "Waiting", "idle"],
  "not started": ["dots", "Not started", "idle"],
  SKIP: ["dots", "SKIP", "idle"],
};

const SHAPES = {
  check: "M4.2 8.4l2.6 2.6 5-5.6",
  cross: "M5 5l6 6M11 5l-6 6",
  bang: "M8 4v5M8 11.6v.2",
  bar: "M6.2 5.2v5.6M9.8 5.2v5.6",
  play: "M6.4 5l4.6 3-4.6 3z",
  dots: "M4.6 8h.1M8 8h.1M11.4 8h.1",
};

export const toneOf = (state) => (STATES[state] ?? STATES.waiting)[2];
export const wordOf = (state) => (STATES[state] ?? [null, String(state)])[1];

export function icon(state) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", SHAPES[(STATES[state] ?? STATES.waiting)[0]]);
  svg.append(path);
  return svg;
}

/** A state as shape and word. A reason of a few words stands in brackets; `longReason` gives the others. */
export function badge(state, reason = null) {
  const brief = isBrief(reason) ? ` (${reason})` : "";
  return el("span", { class: `badge ${toneOf(state)}` }, icon(state), wordOf(state) + brief);
}

export const longReason = (reason) => (reason && !isBrief(reason) ? reason : null);

const isBrief = (reason) => Boolean(reason) && reason.length <= 24;

/** A list of `[term, description]` pairs; pairs without a description are left out. */
export function facts(pairs, name = "facts") {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: name },
    shown.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))));
}

export const code = (text) => el("code", {}, text);
