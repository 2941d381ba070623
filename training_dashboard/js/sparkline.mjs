/** A small picture of a score around an event: logarithmic, with the threshold and the time of the event. */
import { svg } from "./dom.mjs";
import { isNumber } from "./format.mjs";

const [WIDTH, HEIGHT, EDGE] = [320, 64, 3];

export function sparkline({ t, score, threshold }, { start_seconds: from, end_seconds: to }, label) {
  const known = score.filter((value) => isNumber(value) && value > 0);
  if (known.length === 0) return null;
  const limits = [Math.min(...known, threshold), Math.max(...known, threshold)].map(Math.log10);
  const [low, high] = limits[0] === limits[1] ? [limits[0] - 1, limits[1] + 1] : limits;
  const [first, last] = [t[0], t.at(-1)];
  const x = (second) => ((second - first) / (last - first || 1)) * WIDTH;
  const y = (value) =>
    HEIGHT - EDGE - ((Math.log10(Math.max(value, 10 ** low)) - low) / (high - low)) * (HEIGHT - 2 * EDGE);
  let isDown = false;
  const path = score.map((value, at) => {
    const step = isNumber(value) ? `${isDown ? "L" : "M"}${x(t[at]).toFixed(1)} ${y(value).toFixed(1)}` : "";
    isDown = isNumber(value);
    return step;
  });
  const limit = { x1: 0, x2: WIDTH, y1: y(threshold), y2: y(threshold), class: "spark-limit" };
  const span = {
    x: x(from),
    width: Math.max(2, x(to) - x(from)),
    y: 0,
    height: HEIGHT,
    class: "spark-event",
  };
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
    svg("rect", span),
    svg("line", limit),
    svg("path", { d: path.join(""), class: "spark-curve" }),
  );
}
