/** Kinds of charts: curves, and cells of a grid; each as options and data of uPlot, as rows, and as SVG. */
import { el, small, svg } from "./dom.mjs";
import { MISSING, clock, figure, isNumber } from "./format.mjs";

/** Cividis: even in lightness, and suitable for colour vision deficiency. */
const RAMP = [
  [0, 34, 78],
  [60, 77, 110],
  [124, 123, 120],
  [187, 173, 108],
  [254, 232, 56],
];
/** Blue below, red above, white in the middle: for values with a sign. */
const DIVERGING = [
  [5, 48, 97],
  [67, 147, 195],
  [247, 247, 247],
  [214, 96, 77],
  [103, 0, 31],
];
const [FAINT, LOOK_AROUND, LONGEST] = [0.35, 200, 24];
/** Pixels between the ticks of a time axis and of a logarithmic one, at least. */
const [TICK_ROOM, LOG_ROOM] = [60, 20];
/** Ticks of a logarithmic axis within a power of ten. */
const DIGITS = [
  [1],
  [1, 2, 5],
  [1, 2, 3, 4, 5, 6, 7, 8, 9],
  Array.from({ length: 90 }, (none, at) => 1 + at / 10),
];
/** Distances between ticks, without the 2.5 of uPlot. They are read from text, because uPlot looks up their decimals by
 * value, and `5 * 10 ** -7` is another number than `5e-7`. */
const ROUND = Array.from({ length: 75 }, (none, at) =>
  Number(`${[1, 2, 5][at % 3]}e${Math.floor(at / 3) - 12}`),
);
/** If only integers are possible. */
const WHOLE = ROUND.filter(Number.isInteger);

const tick = (value) => {
  const round = Number(value.toPrecision(10));
  return Math.abs(round) < 1e7
    ? round.toLocaleString("en", { maximumFractionDigits: 12 })
    : round.toExponential();
};
const ticks = (plot, splits) => splits.map(tick);
/** Ticks of a logarithmic axis, the roundest digits of powers of ten first, as long as there is space between them. */
function logSplits(plot, axis, low, high) {
  const [first, last] = [low, high].map((end) => Math.floor(Math.log10(end)));
  const powers = Array.from({ length: last - first + 1 }, (none, at) => 10 ** (first + at));
  // The area of the plot is not known when its axes are measured first.
  const height = plot.bbox.height / devicePixelRatio || plot.height;
  const room = (Math.log(high / low) * LOG_ROOM) / height;
  const found = [];
  for (const digits of DIGITS) {
    const finer = powers.flatMap((power) => digits.map((digit) => digit * power));
    for (const value of finer.filter((each) => low <= each && each <= high))
      if (found.every((other) => Math.abs(Math.log(value / other)) >= room)) found.push(value);
    if (found.length > 2) break;
  }
  return found.sort((a, b) => a - b);
}
const logRange = (plot, low, high) => (low === null ? [null, null] : [low / 1.2, high * 1.2]);
/** With milliseconds if there are any. */
const clockOf = (seconds) => {
  const iso = new Date(1000 * seconds).toISOString();
  return clock(iso) + iso.slice(19, -1).replace(".000", "");
};
/** Times of day; dates at midnight if the axis has several days, or if only days fit. */
const clockTicks = (plot, splits) => {
  const isLong = splits.at(-1) - splits[0] >= 86_400;
  const isDate = (text) => isLong && (splits[1] - splits[0] >= 86_400 || text.endsWith("00:00:00"));
  return splits.map(clockOf).map((text) => (isDate(text) ? text.slice(0, 10) : text.slice(11)));
};
/** The marks of the first and the last value are drawn completely. */
const wholeRange = (plot, low, high) => {
  const margin = 0.015 * (high - low) || 0.5;
  return [low - margin, high + margin];
};

/** Curves over one x axis; each may have its own x values. */
export function curves({ curves: all, x: { isClock, isWhole }, y: { isLog, isPercent } }, colour) {
  const tables = all.map(({ x, y }) => [x, isLog ? y.map((value) => (value > 0 ? value : null)) : y]);
  const data = uPlot.join(tables);
  const place = (x) => (isClock && isNumber(x) ? clockOf(x) : figure(x));
  return {
    data,
    options: {
      scales: {
        x: { time: Boolean(isClock), ...(isWhole && { range: wholeRange }) },
        y: isLog ? { distr: 3, range: logRange } : isPercent ? { range: [0, 100] } : {},
      },
      series: [
        { value: (plot, x) => place(x) },
        ...all.map((curve) => ({
          label: curve.name,
          stroke: colour(curve.colour),
          width: curve.width ?? 2,
          dash: curve.dash,
          alpha: curve.isFaint ? FAINT : 1,
          class: curve.isFaint && "faint",
          value: (plot, y) => figure(y),
        })),
      ],
      bands: all.flatMap(({ pairsWith, colour: name }, at) =>
        isNumber(pairsWith) ? [{ series: [at + 1, pairsWith + 1], fill: `${colour(name)}55` }] : [],
      ),
      axes: [
        isClock
          ? { values: clockTicks, space: 80 }
          : { values: ticks, incrs: isWhole ? WHOLE : ROUND, space: 50 },
        isLog
          ? { splits: logSplits, values: ticks, filter: (plot, splits) => splits }
          : { values: ticks, incrs: ROUND },
      ],
      cursor: { y: false, dataIdx: nearest },
      tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), "Etc/UTC"),
    },
    rows: (xLabel, yLabel) => [
      [xLabel, ...all.map(({ name }) => `${name}, ${yLabel}`)],
      ...Array.from(data[0], (x, at) => [isClock ? place(x) : x, ...data.slice(1).map((y) => y[at])]),
    ],
    marks: (plot) =>
      all.map(
        (curve, at) =>
          plot.series[at + 1].show &&
          svg("path", {
            d: pathOf(plot, data[0], data[at + 1]),
            fill: "none",
            stroke: colour(curve.colour),
            "stroke-width": curve.width ?? 2,
            "stroke-opacity": curve.isFaint ? FAINT : 1,
            "stroke-dasharray": curve.dash,
          }),
      ),
  };
}

/** If a curve has no value at the pointer, the nearest one is shown. */
function nearest(plot, curve, at) {
  const isThere = (place) => isNumber(plot.data[curve][place]);
  let away = 0;
  while (away < LOOK_AROUND && !isThere(at - away) && !isThere(at + away)) away += 1;
  return isThere(at - away) ? at - away : at + away;
}

/** An undefined value, at an x of other curves only, does not interrupt the line; null does. */
function pathOf(plot, xs, ys) {
  const { min, max } = plot.scales.x;
  let [path, pen] = ["", "M"];
  xs.forEach((x, at) => {
    if (ys[at] === undefined || x < min || x > max) return;
    if (ys[at] !== null)
      path += `${pen}${plot.valToPos(x, "x").toFixed(1)} ${plot.valToPos(ys[at], "y").toFixed(1)}`;
    pen = ys[at] === null ? "M" : "L";
  });
  return path;
}

export const brief = (name, most = LONGEST) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

/** A grid of values as colours; positions on both axes are numbered, and named if there is space. */
export function cells({
  z,
  what,
  say,
  range,
  isDiverging,
  x: { names: across, times },
  y: { names: up, values },
}) {
  const picture = bitmap(z, range, isDiverging ? DIVERGING : RAMP);
  const centres = across.map((name, at) => at + 0.5);
  const axis = (names, room, side) => ({
    grid: { show: false },
    splits: (plot) => {
      // The area of the plot is not known when its axes are measured first.
      const every = Math.ceil((names.length * room) / (plot.bbox[side] / devicePixelRatio || plot[side]));
      return names.map((name, at) => at + 0.5).filter((centre, at) => at % every === 0);
    },
    values: (plot, splits) => splits.map((split) => brief(String(names[Math.floor(split)]))),
  });
  const value = (plot, y, series, at) => {
    const row = Math.floor(plot.posToVal(plot.cursor.top, "y"));
    return isNumber(at) && z[row] ? `${up[row]}: ${say(z[row][at])}` : MISSING;
  };
  return {
    data: [centres, centres],
    options: {
      scales: {
        x: { time: false, range: (plot, low, high) => [low - 0.5, high + 0.5] },
        y: { range: () => [0, up.length] },
      },
      series: [
        { value: (plot, x, series, at) => across[at] ?? MISSING },
        { label: what, paths: () => null, points: { show: false }, value },
      ],
      axes: [
        times ? timeAxis(times) : axis(across, 110, "width"),
        values ? roundAxis(values) : axis(up, 20, "height"),
      ],
    },
    paint(plot) {
      const { ctx, bbox } = plot;
      const [left, right] = [0, across.length].map((x) => plot.valToPos(x, "x", true));
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.imageSmoothingEnabled = false;
      ctx.drawImage(picture, left, bbox.top, right - left, bbox.height);
      ctx.restore();
    },
    rows: (xLabel, yLabel) => [
      [`${yLabel} \\ ${xLabel}`, ...across],
      ...z.map((line, at) => [up[at], ...line]),
    ],
    marks(plot) {
      const [left, right] = [0, across.length].map((x) => plot.valToPos(x, "x"));
      const place = {
        x: left,
        width: right - left,
        height: plot.over.clientHeight,
        preserveAspectRatio: "none",
      };
      return [svg("image", { href: picture.toDataURL(), "image-rendering": "pixelated", ...place })];
    },
  };
}

/** The minimum and the maximum of the rows. */
export function extent(rows) {
  const known = rows.flat().filter(isNumber);
  return [Math.min, Math.max].map((pick) => known.reduce((a, b) => pick(a, b), known[0]));
}

/** An axis of rows with logarithmic values: ticks at 1, 2 and 5 times a power of ten, also between rows. */
function roundAxis(values) {
  const [low, high] = [Math.log(values[0]), Math.log(values.at(-1))];
  const place = (value) => 0.5 + ((Math.log(value) - low) / (high - low || 1)) * (values.length - 1);
  const names = new Map();
  for (let power = Math.floor(Math.log10(values[0])); power <= Math.log10(values.at(-1)); power += 1)
    for (const digit of [1, 2, 5]) {
      const value = digit * 10 ** power;
      if (value >= values[0] && value <= values.at(-1)) names.set(place(value), tick(value));
    }
  return {
    grid: { show: false },
    splits: () => [...names.keys()],
    values: (plot, splits) => splits.map((split) => names.get(split)),
  };
}

/** An axis of evenly spaced columns with times in seconds: ticks at multiples of a round step, also between columns. */
function timeAxis(times) {
  const [first, last] = [times[0], times.at(-1)];
  const perSecond = (times.length - 1) / (last - first) || 1;
  let digits = 0;
  return {
    grid: { show: false },
    splits: (plot) => {
      const width = plot.bbox.width / devicePixelRatio || plot.width;
      const least = ((last - first || 1) * TICK_ROOM) / width;
      const power = Math.floor(Math.log10(least));
      const step = [1, 2, 5, 10].map((digit) => digit * 10 ** power).find((size) => size >= least);
      digits = Math.max(0, -Math.floor(Math.log10(step)));
      const [from, to] = [Math.ceil(first / step), Math.floor(last / step)];
      return Array.from(
        { length: Math.max(0, to - from + 1) },
        (none, at) => 0.5 + ((from + at) * step - first) * perSecond,
      );
    },
    values: (plot, splits) => splits.map((split) => (first + (split - 0.5) / perSecond).toFixed(digits)),
  };
}

/** The colours of a grid between the ends of its range. */
export function colourBar({ range, say, isDiverging }) {
  const steps = Array.from({ length: 64 }, (none, at) => at / 63);
  const bar = bitmap([steps], [0, 1], isDiverging ? DIVERGING : RAMP);
  bar.className = "colours";
  const middle = isDiverging && small(say(0));
  return el("div", { class: "colourbar" }, bar, small(say(range[0])), middle, small(say(range[1])));
}

function bitmap(z, [low, high], ramp) {
  const canvas = el("canvas", { width: z[0].length, height: z.length });
  const pen = canvas.getContext("2d");
  for (const [y, line] of z.entries()) {
    for (const [x, value] of line.entries()) {
      pen.fillStyle = isNumber(value) ? shade((value - low) / (high - low || 1), ramp) : "transparent";
      pen.fillRect(x, z.length - 1 - y, 1, 1);
    }
  }
  return canvas;
}

/** The colour of a share between 0 and 1. */
function shade(share, ramp) {
  const place = Math.max(0, Math.min(1, share)) * (ramp.length - 1);
  const at = Math.min(ramp.length - 2, Math.floor(place));
  return `rgb(${ramp[at].map((from, channel) => from + (place - at) * (ramp[at + 1][channel] - from))})`;
}
