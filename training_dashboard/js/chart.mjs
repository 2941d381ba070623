/** Charts based on uPlot: curves or cells, with a legend that shows values, keyboard control and downloads. */
import { el, svg } from "./dom.mjs";
import { button, pictureOf, saveCsv, savePng, saveSvg } from "./download.mjs";
import { brief, cells, colourBar, curves } from "./plots.mjs";

const HEIGHT = 220;
/** Height of a letter of a vertical label, with a share of the space above and below the plot. */
const LETTER = 9;
/** Width of a printed chart in pixels, for A4 or Letter paper. */
const PAPER = 640;
const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity };

/** A chart is drawn when its frame is near the screen or printed, and again when colours or size change. */
const notify = (event) => (seen) => {
  for (const { target } of seen) target.dispatchEvent(new Event(event));
};
const isNear = ({ isIntersecting }) => isIntersecting;
const onScreen = new IntersectionObserver((seen) => notify("near")(seen.filter(isNear)), {
  rootMargin: "200px",
});
const onResize = new ResizeObserver(notify("fit"));
const notifyAll = (event) => () =>
  notify(event)([...document.querySelectorAll(".frame")].map((target) => ({ target })));
let isPrinting = false;
for (const [event, begins] of Object.entries({ beforeprint: true, afterprint: false }))
  addEventListener(event, () => {
    isPrinting = begins;
    notifyAll("near")();
    notifyAll("fit")();
  });
for (const media of ["(prefers-color-scheme: dark)", "print"]) {
  matchMedia(media).addEventListener("change", notifyAll("dye"));
}

/**
 * spec: `{title, of?, summary, height?, isWide?, onzoom?, x: {label, isClock?, isWhole?}, y: {label, isLog?, isPercent?}}` and in it
 *   curves: `{name, x, y, colour, dash?, width?, isFaint?, pairsWith?}`; spans: `{from, to, colour, label, name?, onclick?}`;
 *   lines: `{x | y, colour, label}`; points: `{x, y, colour, label}`. Colours are names of the style sheet.
 */
export const lineChart = (spec) => new Chart(curves, spec);

/** spec: `{title, of?, summary, x: {label, names}, y: {label, names}, z, what, say, range, isDiverging?, height?}`; `z[0]` is the
 * lowest row. */
export const heatMap = (spec) => new Chart(cells, spec);

/** A title that is also clear outside of the card of the chart. */
const nameOf = ({ title, of }) => (of ? `${title}, ${of}` : title);

/** Colours of the current scheme by their name in the style sheet. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}

class Chart {
  #kind;
  #drawing;
  #plot = null;
  #spoken = el("output", { class: "unseen" });
  #marks = svg("svg", { class: "marks", "aria-hidden": "true" });
  #frame = el("div", {
    class: "frame",
    onnear: () => this.#plot ?? this.draw(),
    onfit: () => this.#fit(),
    ondye: () => this.update(this.spec),
  });

  constructor(kind, spec) {
    this.#kind = kind;
    // Space for the chart and its legend is reserved before drawing, so that the page does not move under the pointer.
    this.#frame.style.minHeight = `calc(${spec.height ?? HEIGHT}px + 1.55em)`;
    const title = nameOf(spec);
    const take = (what, save) => button(what, `${title} as ${what}`, save);
    const look = spec.isWide ? "chart wide" : "chart";
    this.node = el(
      "figure",
      { class: look, tabindex: "0", onkeydown: (event) => this.#key(event) },
      el(
        "figcaption",
        {},
        el("h3", { "aria-label": title }, spec.title),
        el(
          "span",
          { class: "between" },
          take("CSV", () => saveCsv(title, this.#drawing.rows(spec.x.label, spec.y.label))),
          take("SVG", () => this.#picture(saveSvg)),
          take("PNG", () => this.#picture(savePng)),
        ),
      ),
      this.#frame,
      kind === cells && colourBar(spec),
      this.#spoken,
    );
    this.update(spec);
    onScreen.observe(this.#frame);
  }

  /** Shows other data; the zoomed range stays, unless the x axis changes. */
  update(spec) {
    const [before, plot] = [this.spec, this.#plot];
    this.spec = spec;
    this.#drawing = this.#kind(spec, palette());
    this.node.setAttribute("aria-label", `${spec.summary}. Arrow keys read values.`);
    if (!plot) return;
    const {
      cursor: { left, top },
      scales: {
        x: { min, max },
      },
      data: [x],
    } = plot;
    this.draw();
    if (before.x.label === spec.x.label && (min > x[0] || max < x.at(-1)))
      this.#plot.setScale("x", { min, max });
    this.#plot.setCursor({ left, top });
  }

  draw() {
    const { spec } = this;
    const height = spec.height ?? HEIGHT;
    const [{ data, options, paint }, colour] = [this.#drawing, palette()];
    const { fontFamily, fontSize } = getComputedStyle(document.body);
    const font = `${Math.round(0.8 * parseFloat(fontSize))}px ${fontFamily}`;
    const plain = { stroke: colour("muted"), font, labelFont: font, labelSize: 22, ticks: { show: false } };
    const axis = (own) => ({ ...plain, ...own, grid: { stroke: colour("line"), width: 1, ...own.grid } });
    const axes = [
      axis({ label: spec.x.label, size: 32, ...options.axes[0] }),
      axis({ label: brief(spec.y.label, height / LETTER), size: spec.y.size ?? widthOf, ...options.axes[1] }),
    ];
    this.#plot?.destroy();
    this.#plot = new uPlot(
      {
        ...options,
        axes,
        width: this.#frame.clientWidth,
        height,
        padding: [10, 30, 0, 0],
        series: [{ label: spec.x.label, ...options.series[0] }, ...options.series.slice(1)],
        cursor: {
          drag: { x: true, y: false, dist: 4 },
          bind: { mouseleave: onlyOfMouse },
          ...(spec.syncWith && { sync: { key: spec.syncWith, scales: ["x", null] } }),
          ...options.cursor,
        },
        legend: { markers: { dash: (plot, at) => (plot.series[at].dash ? "dashed" : "solid") } },
        hooks: {
          drawClear: [(plot) => paint?.(plot)],
          draw: [(plot) => this.#mark(plot, colour)],
          setScale: [(plot, key) => key === "x" && spec.onzoom?.(plot.scales.x.min, plot.scales.x.max)],
        },
      },
      data,
      this.#frame,
    );
    this.#plot.over.append(this.#marks);
    listenToTouch(this.#plot);
    onResize.observe(this.#frame);
  }

  #fit() {
    const width = Math.min(this.#frame.clientWidth, isPrinting ? PAPER : Infinity);
    if (width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: this.#plot.height });
  }

  async #picture(save) {
    // A chart that was never near the screen is drawn first, which ends with this task.
    if (!this.#plot) await this.draw();
    const colour = palette();
    const marks = [this.#drawing.marks(this.#plot), [...this.#marks.cloneNode(true).childNodes]];
    const legend = (this.spec.curves ?? []).flatMap((one) =>
      one.isFaint ? [] : [[one.name, colour(one.colour)]],
    );
    const title = nameOf(this.spec);
    const colours = { ink: colour("ink"), line: colour("line"), surface: colour("surface") };
    save(title, pictureOf(this.#plot, title, legend, marks, colours));
  }

  /** Spans, lines and points on top of the uPlot drawing. */
  #mark(plot, colour) {
    const [x, y] = ["x", "y"].map((scale) => (value) => plot.valToPos(value, scale));
    const { clientWidth: w, clientHeight: h } = plot.over;
    const halo = {
      fill: colour("ink"),
      stroke: colour("surface"),
      "stroke-width": 3,
      "paint-order": "stroke",
    };
    const text = (label, more) => svg("text", { "font-size": 12, ...halo, ...more }, label);
    const span = ({ from, to, colour: tone, label, name, onclick }) => {
      const place = { x: x(from), y: 0, width: Math.max(3, x(to) - x(from)), height: h };
      const look = { fill: colour(tone), "fill-opacity": 0.2, class: onclick && "hot", onclick };
      const box = svg("rect", { ...place, ...look }, svg("title", {}, label));
      const isInside = name && place.x < w - 60 && place.x + place.width > 0;
      return [box, isInside && text(name, { x: Math.max(place.x, 0) + 4, y: h - 6 })];
    };
    const line = (one) => {
      const at = "x" in one ? x(one.x) : y(one.y);
      const ends = "x" in one ? { x1: at, x2: at, y1: 0, y2: h } : { x1: 0, x2: w, y1: at, y2: at };
      const isLate = "x" in one && at > w - 60;
      const nextTo = { x: isLate ? at - 4 : at + 4, "text-anchor": isLate ? "end" : "start" };
      const place =
        "x" in one ? { ...nextTo, y: one.isBelow ? 28 : 12 } : { x: w - 4, y: at - 5, "text-anchor": "end" };
      const stroke = { stroke: colour(one.colour), "stroke-width": 1.5, "stroke-dasharray": "6 4" };
      return [svg("line", { ...ends, ...stroke }), text(one.label, place)];
    };
    const point = (one) =>
      svg(
        "g",
        { transform: `translate(${x(one.x)} ${y(one.y)})` },
        svg("path", {
          d: "M0-7 7 0 0 7-7 0z",
          fill: colour(one.colour),
          stroke: colour("surface"),
          "stroke-width": 1.5,
        }),
        text(one.label, { y: -11, "text-anchor": x(one.x) > w / 2 ? "end" : "start" }),
      );
    const { spans = [], lines = [], points = [] } = this.spec;
    this.#marks.replaceChildren(
      ...spans.flatMap(span).filter(Boolean),
      ...lines.flatMap(line),
      ...points.map(point),
    );
  }

  #key(event) {
    const plot = this.#plot;
    const x = plot?.data[0] ?? [];
    if (event.key === "Escape") plot?.setData(plot.data);
    if (!(event.key in STEPS) || x.length === 0) return;
    event.preventDefault();
    const at = Math.max(0, Math.min(x.length - 1, (plot.cursor.idx ?? -1) + STEPS[event.key]));
    plot.setCursor({ left: plot.valToPos(x[at], "x"), top: plot.over.clientHeight / 2 });
    // Values read by keyboard are announced to screen readers; the legend itself is silent.
    const rows = [...this.#frame.querySelectorAll(".u-legend .u-series")];
    const read = ({ cells: shown }) => [...shown].map((cell) => cell.textContent).join(" ");
    this.#spoken.textContent = rows.map(read).join(", ");
  }
}

/** Touching and moving sideways shows values; moving up and down still scrolls the page. */
function listenToTouch(plot) {
  const read = ({ touches: [{ clientX, clientY }] }) => {
    const { left, top } = plot.over.getBoundingClientRect();
    plot.setCursor({ left: clientX - left, top: clientY - top }, true, true);
  };
  for (const event of ["touchstart", "touchmove"]) plot.over.addEventListener(event, read, { passive: true });
}

/** What a finger has read stays: after a tap, the browser reports that a mouse elsewhere leaves the plot. */
function onlyOfMouse(plot, over, leave) {
  let pointer;
  for (const event of ["pointerdown", "pointermove"])
    over.addEventListener(event, ({ pointerType }) => (pointer = pointerType));
  return (event) => pointer === "mouse" && leave(event);
}

/** Space for the longest tick of a vertical axis. */
const widthOf = (plot, values) =>
  14 + 7.2 * Math.max(3, ...(values ?? []).map((value) => String(value).length));
