/** Building blocks of the page. Text is always inserted as text, never as markup. */
const isThere = (value) => value !== null && value !== undefined && value !== false && value !== "";

/** `el("p", {class: "x", onclick: f}, "text", node, null)`: attributes, listeners, children; null is left out. */
export const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function build(node, attributes = {}, children = []) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on") && value) node.addEventListener(name.slice(2), value);
    else if (isThere(value) || value === "") node.setAttribute(name, value === true ? "" : String(value));
  }
  return fill(node, children);
}

/** What a line break must not separate: numbers and their units, and names such as Swin-MAE. */
const UNBROKEN =
  /(\d %(?: interval)?|\d h \d+ min|\d (?:×|s|ms|min|h|Hz|dB|[MG]iB)(?![\w])|[A-Za-z]\w*-[A-Za-z]\w{1,5}(?![\w-]))/;
const PROSE = new Set(["P", "DD", "SMALL", "TD", "BUTTON"]);
const unbroken = (part, at) =>
  at % 2 ? Object.assign(document.createElement("span"), { className: "unbroken", textContent: part }) : part;

/** Replaces the content of `node` by `children`; the element with the same id keeps the focus. */
export function fill(node, ...children) {
  const { id } = node.contains(document.activeElement) ? document.activeElement : node;
  const parts = children.flat(Infinity).filter(isThere);
  const isSplit = (part) => PROSE.has(node.tagName) && typeof part === "string";
  node.replaceChildren(
    ...parts.flatMap((part) => (isSplit(part) ? part.split(UNBROKEN).map(unbroken) : [part])),
  );
  if (id && id !== node.id) document.getElementById(id)?.focus({ preventScroll: true });
  return node;
}

/** The tone of each state: a colour, and a mark for users with colour vision deficiency. */
const TONES = {
  good: ["done", "completed", "PASS", "keep", "no event"],
  busy: ["running"],
  bad: ["failed", "FAIL", "drop", "open events", "open"],
  warn: ["attention", "stopped", "silent", "unreadable", "warning", "WARN", "drift", "stale"],
};
export const toneOf = (state) => Object.keys(TONES).find((tone) => TONES[tone].includes(state)) ?? "idle";
export const wordOf = (state) => state.charAt(0).toUpperCase() + state.slice(1);
export const seal = (state) => el("span", { class: `seal ${toneOf(state)}` });
/** A mark in the colour of a curve. */
export const dot = (colour) =>
  svg(
    "svg",
    { viewBox: "0 0 8 8", class: "dot", "aria-hidden": "true" },
    svg("circle", { cx: 4, cy: 4, r: 4, fill: `var(--${colour})` }),
  );
export const badge = (state) => el("span", { class: `badge ${toneOf(state)}` }, wordOf(state));
/** The light of a machine: a badge that is visible from a distance. */
export const light = (state) => el("span", { class: `light ${toneOf(state)}` }, wordOf(state));
/** A state, its subject, and a message. */
export const finding = (state, ...text) => el("li", {}, badge(state), el("div", {}, text));

/** A path, which may be broken after its slashes. */
export const path = (text) =>
  text.split(/(?<=\/)/).flatMap((part, at) => (at > 0 ? [el("wbr"), part] : [part]));

export const code = (text) => el("code", {}, text);
/** A message whose commands are between backticks. */
export const prose = (message) => {
  const parts = (message ?? "").split("`");
  return parts.length % 2 ? parts.map((part, at) => (at % 2 ? code(part) : part)) : message;
};
/** A file of the workspace, with a link if it is a page. */
export const file = (store, name) => {
  const address = name.endsWith(".html") && store.addressOf(name);
  return address
    ? el("a", { href: address.split("/").map(encodeURIComponent).join("/") }, path(name))
    : code(path(name));
};
export const small = (...text) => el("small", {}, text);
export const quiet = (...text) => el("p", { class: "quiet" }, text);
export const warning = (...text) => el("p", { class: "warning warn" }, el("span", {}, text));
/** Content of an empty area: `advice("Nothing scored yet", "landfall score", "finds the events")`. */
export const advice = (what, command, effect) => quiet(`${what}: `, code(command), ` ${effect}.`);

/** A list of `[term, description]` pairs; pairs without a description are left out. */
export const facts = (pairs, name = "facts") =>
  el(
    "dl",
    { class: name },
    pairs
      .filter(([, value]) => isThere(value))
      .map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))),
  );
export const card = (title, aside, ...children) =>
  el("section", { class: "card" }, el("header", {}, el("h2", {}, title), aside), children);
export const block = (title, ...children) => el("div", { class: "block" }, el("h3", {}, title), children);
export const fold = (title, ...children) => el("details", {}, el("summary", {}, title), children);

/** A bar filled to `share` of its length. */
export function meter(label, share, tone) {
  const range = { "aria-valuenow": Math.round(100 * share), "aria-valuemin": 0, "aria-valuemax": 100 };
  const node = el(
    "div",
    { class: `meter ${tone}`, role: "meter", "aria-label": label, ...range },
    el("span"),
  );
  node.firstChild.style.width = `${100 * share}%`;
  return node;
}

export const picker = (id, label, options, chosen, onchoose) =>
  el(
    "label",
    { class: "control" },
    label,
    el(
      "select",
      { id, onchange: ({ target }) => onchoose(target.value) },
      options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)),
    ),
  );

/** A choice between a few visible options. */
export const choice = (id, legend, options, chosen, onchoose) =>
  el(
    "fieldset",
    { class: "control switch" },
    el("legend", {}, legend),
    options.map(([value, text]) =>
      el(
        "label",
        {},
        el("input", {
          type: "radio",
          id: `${id}-${value}`,
          name: id,
          checked: value === chosen,
          onchange: () => onchoose(value),
        }),
        el("span", {}, text),
      ),
    ),
  );
