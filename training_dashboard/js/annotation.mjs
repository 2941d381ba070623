/** Annotations by users: a time span with a label and a comment, which the server stores next to the scores. */
import { block, el, fold, picker, quiet, small, warning } from "./dom.mjs";
import { clock, time } from "./format.mjs";
import { dataTable, text } from "./table.mjs";

const LABELS = ["fault", "false alarm", "maintenance"].map((label) => [label, label]);
/** An annotation without content removes the one of its span. */
const NOTHING = { acknowledged: false, label: null, comment: "" };

/** The state of an event: open, acknowledged, or its label. */
export const stateOf = ({ annotation }) =>
  [annotation?.acknowledged ? "acknowledged" : "open", annotation?.label].filter(Boolean).join(", ");

/** The annotation of an event. */
export function annotation(store, stream, event) {
  const { acknowledged = false, label, comment = "", at } = event.annotation ?? {};
  const noted = at && quiet(`Noted ${time(at)}.`);
  if (!store.isServed)
    return at ? block("Annotation", el("p", {}, stateOf(event)), quiet(comment), noted) : null;
  const box = el("input", { type: "checkbox", id: "acknowledged", checked: acknowledged });
  const labels = picker("label", "Label", [["", "not labelled"], ...LABELS], label ?? "", () => null);
  const words = commentBox("comment", comment);
  const note = () => ({ acknowledged: box.checked, label: chosen(labels) || null, comment: words.value });
  const [keep, result] = keeper("keep", () => store.annotate(stream, event, note()));
  return block(
    "Annotation",
    el("div", { class: "controls" }, el("label", { class: "control" }, box, "Acknowledged"), labels, keep),
    words,
    result,
    noted,
  );
}

/**
 * The annotations of a recording, and a form to annotate any of its time spans, such as maintenance.
 *
 * axis: `{origin, isClock}`: position of its second 0 on the axis. visible: the range that the chart shows. show: marks
 * a range in the chart. Ranges are `[from, to]` on the axis.
 */
export function annotations(store, stream, { recording, items, axis, visible, show }) {
  return [
    items.length > 0 && list(store, stream, items, axis),
    store.isServed && form(store, stream, recording, axis, visible, show),
  ];
}

function list(store, stream, items, { origin, isClock }) {
  const place = (second) =>
    isClock ? clock(new Date(1000 * (origin + second)).toISOString()) : `second ${second}`;
  const remove = async ({ target }, item) => {
    const problem = await store.annotate(stream, item, NOTHING);
    if (problem) target.after(small(`It was not removed: ${problem}`));
  };
  const columns = [
    text(
      "from",
      "Begins",
      (item) => item.start_seconds,
      (item) => place(item.start_seconds),
    ),
    text(
      "to",
      "Ends",
      (item) => item.end_seconds,
      (item) => place(item.end_seconds),
    ),
    text("label", "Annotation", (item) => item.label ?? "acknowledged"),
    text("comment", "Comment", ({ comment }) => comment),
    text(
      "at",
      "Noted",
      ({ at }) => at,
      ({ at }) => time(at),
    ),
  ];
  const button = text(
    "remove",
    "Remove",
    () => "",
    (item) =>
      el(
        "button",
        {
          type: "button",
          class: "small",
          "aria-label": `Remove the annotation of ${place(item.start_seconds)}`,
          onclick: (event) => remove(event, item),
        },
        "Remove",
      ),
  );
  return dataTable({
    id: "annotations",
    label: "Annotations",
    columns: store.isServed ? [...columns, button] : columns,
    items,
  });
}

function form(store, stream, recording, { origin, isClock }, visible, show) {
  const kind = isClock ? { type: "datetime-local", step: "any" } : { type: "number", step: "any" };
  const write = (at) => (isClock ? new Date(1000 * at).toISOString().slice(0, 19) : String(at));
  const read = ({ value }) => (isClock ? Date.parse(`${value}Z`) / 1000 : Number.parseFloat(value));
  const range = () => [read(from), read(to)];
  const oninput = () => show(range());
  const [from, to] = ["from", "to"].map((id) => el("input", { ...kind, id: `span-${id}`, oninput }));
  const take = () => {
    const [start, end] = visible();
    // Whole seconds around it.
    [from.value, to.value] = [write(Math.floor(start)), write(Math.ceil(end))];
    oninput();
  };
  const labels = picker("span-label", "Label", LABELS, "maintenance", () => null);
  const words = commentBox("span-comment", "");
  const [keep, result] = keeper("span-keep", () => {
    const [start, end] = range();
    if (!(start <= end)) return "enter a start, and an end after the start";
    const span = { recording, start_seconds: start - origin, end_seconds: end - origin };
    return store.annotate(stream, span, { acknowledged: true, label: chosen(labels), comment: words.value });
  });
  const unit = isClock ? "" : " (s)";
  return fold(
    "Annotate a time span, such as maintenance",
    el(
      "div",
      { class: "controls" },
      el("label", { class: "control" }, `From${unit}`, from),
      el("label", { class: "control" }, `To${unit}`, to),
      el("button", { type: "button", id: "span-visible", onclick: take }, "Use the visible range"),
      labels,
      keep,
    ),
    words,
    quiet(
      "Its events are acknowledged. From the next scoring on, maintenance is not evaluated, and neither maintenance nor " +
        "faults are used as normal operation.",
    ),
    result,
  );
}

const commentBox = (id, value) =>
  el("textarea", { id, rows: 2, maxlength: 2000, "aria-label": "Comment", placeholder: "Comment" }, value);
const chosen = (labels) => labels.querySelector("select").value;

/** A button that saves, and a message about the result; `save` returns the reason of a failure, or null. */
function keeper(id, save) {
  const result = el("div", { role: "status" });
  const onclick = async () => {
    const problem = await save();
    result.replaceChildren(problem ? warning(`It was not saved: ${problem}.`) : quiet("Saved."));
  };
  return [el("button", { type: "button", id, onclick }, "Save"), result];
}
