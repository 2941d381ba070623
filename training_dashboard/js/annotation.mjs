/** The user's notes about an event: a form that the dashboard server stores in a file next to the scores. */
import { block, el, picker, quiet, warning } from "./dom.mjs";
import { time } from "./format.mjs";

const LABELS = [
  ["", "not labelled"],
  ["fault", "fault"],
  ["false alarm", "false alarm"],
  ["maintenance", "maintenance"],
];

/** The state of an event: open, acknowledged, or its label. */
export const standing = ({ annotation }) =>
  [annotation?.acknowledged ? "acknowledged" : "open", annotation?.label].filter(Boolean).join(", ");

export function annotation(store, stream, event) {
  const { acknowledged = false, label, comment = "", at } = event.annotation ?? {};
  const noted = at && quiet(`Noted ${time(at)}.`);
  if (!store.isServed)
    return at ? block("Annotation", el("p", {}, standing(event)), quiet(comment), noted) : null;
  const box = el("input", { type: "checkbox", id: "acknowledged", checked: acknowledged });
  const labels = picker("label", "It was a", LABELS, label ?? "", () => null);
  const text = el("textarea", { id: "comment", rows: 2, maxlength: 2000, "aria-label": "Comment" }, comment);
  const answer = el("div", { role: "status" });
  const save = async () => {
    const note = {
      acknowledged: box.checked,
      label: labels.querySelector("select").value || null,
      comment: text.value,
    };
    const problem = await store.annotate(stream, event, note);
    answer.replaceChildren(problem ? warning(`It was not kept: ${problem}`) : quiet("Kept."));
  };
  return block(
    "Annotation",
    el(
      "div",
      { class: "controls" },
      el("label", { class: "control" }, box, "Acknowledged"),
      labels,
      el("button", { type: "button", id: "keep", onclick: save }, "Keep"),
    ),
    text,
    answer,
    noted,
  );
}
