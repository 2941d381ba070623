/** Loss charts with plotly.js, which the export copies out of the installed Python package. */

const LIBRARY = "vendor/plotly.min.js";
const MISSING_LIBRARY = "The chart library is missing: export again with make validate. The figures are below.";

let loading = null;

function library() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = LIBRARY;
    script.onload = () => (globalThis.Plotly ? resolve(globalThis.Plotly) : reject(new Error(MISSING_LIBRARY)));
    script.onerror = () => reject(new Error(MISSING_LIBRARY));
    document.head.append(script);
  });
  return loading;
}

function theme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  const names = ["ink", "muted", "line", "surface", "train", "validation"];
  const colours = Object.fromEntries(names.map((name) => [name, value(`--${name}`)]));
  return { ...colours, font: getComputedStyle(document.body).fontFamily };
}

/** Draws the curves of `run` (a stream of a run record) into `node`; `scale` is `linear` or `log`. */
export async function draw(node, run, scale) {
  const plotly = await library();
  const colours = theme();
  const options = { displayModeBar: false, displaylogo: false, responsive: true };
  await plotly.newPlot(node, traces(run, colours), layout(run, scale, colours), options);
}

function traces(run, colours) {
  const epochs = run.history.map((point) => point.epoch);
  const markers = epochs.length <= 40;
  const curve = (name, key, colour, dash, symbol) => ({
    name, x: epochs, y: run.history.map((point) => point[key]), mode: markers ? "lines+markers" : "lines",
    line: { color: colour, width: 2, dash }, marker: { color: colour, size: 6, symbol },
    hovertemplate: `%{y:.4g}<extra>${name}</extra>`,
  });
  const curves = [];
  // Steps count through the whole run; planned steps per epoch place them on the epoch axis.
  if (run.step_history.length > 0 && run.steps > 0 && run.epochs > 0) {
    curves.push({
      name: "each step", mode: "lines", hoverinfo: "skip", opacity: 0.45, line: { color: colours.train, width: 1 },
      x: run.step_history.map((point) => (point.step * run.epochs) / run.steps),
      y: run.step_history.map((point) => point.loss),
    });
  }
  if (epochs.length > 0) curves.push(curve("training", "train_loss", colours.train, "solid", "circle"));
  if (run.history.some((point) => point.val_loss !== null)) {
    curves.push(curve("validation", "val_loss", colours.validation, "dash", "square"));
  }
  if (run.best) {
    curves.push({
      name: `best: epoch ${run.best.epoch}`, x: [run.best.epoch], y: [run.best.val_loss], mode: "markers",
      marker: { symbol: "star", size: 15, color: colours.validation, line: { color: colours.surface, width: 1.5 } },
      hoverinfo: "skip",
    });
  }
  return curves;
}

function layout(run, scale, colours) {
  const axis = {
    gridcolor: colours.line, linecolor: colours.line, zeroline: false, automargin: true,
    tickfont: { color: colours.muted },
  };
  return {
    height: 320, margin: { l: 8, r: 12, t: 8, b: 8 }, hovermode: "x unified",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colours.font, size: 13, color: colours.ink },
    hoverlabel: { bgcolor: colours.surface, bordercolor: colours.line, font: { color: colours.ink } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
    xaxis: {
      ...axis, title: { text: "epoch", standoff: 8 }, rangemode: "tozero", dtick: run.epochs <= 12 ? 1 : undefined,
    },
    yaxis: {
      ...axis, title: { text: "loss", standoff: 8 }, type: scale, rangemode: scale === "log" ? "normal" : "tozero",
    },
  };
}
