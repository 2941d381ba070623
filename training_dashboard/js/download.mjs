/** Downloads: a table as CSV, a chart as CSV, SVG or PNG. */
import { el, svg } from "./dom.mjs";

const [SCALE, HEAD] = [2, 56];

export const button = (text, name, onclick) =>
  el("button", { type: "button", class: "small", "aria-label": name, title: name, onclick }, text);

function save(name, content, type) {
  const address = URL.createObjectURL(new Blob(content, { type }));
  el("a", { href: address, download: name.replace(/[^\w.-]+/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A cell according to RFC 4180; text that a spreadsheet would treat as a formula gets an apostrophe. */
function cell(value) {
  if (typeof value === "number") return String(value);
  const text = String(value ?? "").replace(/^[=+\-@\t\r]/, "'$&");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const saveCsv = (name, rows) =>
  save(
    `${name}.csv`,
    rows.map((row) => `${row.map(cell).join(",")}\r\n`),
    "text/csv",
  );

export const saveSvg = (name, picture) =>
  save(`${name}.svg`, [new XMLSerializer().serializeToString(picture)], "image/svg+xml");

export async function savePng(name, picture) {
  const [width, height] = ["width", "height"].map((side) => SCALE * Number(picture.getAttribute(side)));
  const image = new Image(width, height);
  image.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(picture))}`;
  await image.decode();
  const canvas = el("canvas", { width, height });
  canvas.getContext("2d").drawImage(image, 0, 0, width, height);
  canvas.toBlob((blob) => save(`${name}.png`, [blob], "image/png"));
}

/** A drawn uPlot as SVG: title and legend (name, colour) over axes, with `marks` between them. */
export function pictureOf(plot, title, legend, marks, { ink, line, surface }) {
  const { offsetLeft: left, offsetTop: top, clientWidth: w, clientHeight: h } = plot.over;
  const [width, height] = [plot.width, plot.height + HEAD];
  const text = (x, y, value, more) => svg("text", { x, y, fill: ink, ...more }, value);
  const rule = (x1, y1, x2, y2) => svg("line", { x1, y1, x2, y2, stroke: line });
  // Positions and labels of the ticks, computed by uPlot.
  const ticks = (axis, draw) => axis._splits.map((split, at) => draw(split, axis._values[at]));
  const across = (split, value, x = left + plot.valToPos(split, "x")) => [
    rule(x, top, x, top + h),
    text(x, top + h + 18, value, { "text-anchor": "middle" }),
  ];
  const up = (split, value, y = top + plot.valToPos(split, "y")) => [
    rule(left, y, left + w, y),
    text(left - 8, y + 4, value, { "text-anchor": "end" }),
  ];
  const turned = { "text-anchor": "middle", transform: `translate(12 ${top + h / 2}) rotate(-90)` };
  return svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif", "font-size": 12 },
    svg("rect", { width, height, fill: surface }),
    text(8, 20, title, { "font-size": 15, "font-weight": 600 }),
    text(
      8,
      42,
      legend.map(([name, fill]) => [svg("tspan", { fill }, "■ "), svg("tspan", {}, `${name}   `)]),
    ),
    svg(
      "g",
      { transform: `translate(0 ${HEAD})` },
      ticks(plot.axes[0], across),
      ticks(plot.axes[1], up),
      svg("svg", { x: left, y: top, width: w, height: h }, marks),
      text(0, 0, plot.axes[1].label, turned),
      text(left + w / 2, plot.height - 4, plot.axes[0].label, { "text-anchor": "middle" }),
    ),
  );
}
