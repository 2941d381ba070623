/** Numbers, times and durations in readable form; a missing value is an en dash. */
export const MISSING = "–";
/** Time zone of all times on the page, except those of recordings. */
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const when = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  timeZoneName: "short",
});

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const format = (text) => (value) => (isNumber(value) ? text(value) : MISSING);

export const count = format((value) => whole.format(value));
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
/** Four significant digits; very small and very large values as 1.23e-4. */
export const figure = format((value) => {
  const isExtreme = value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6);
  return isExtreme ? value.toExponential(2) : String(Number(value.toPrecision(4)));
});
/** A score between 0 and 1, always with three decimals, so that columns line up. */
export const score = format((value) => value.toFixed(3));
/** Four significant digits, never an exponent. */
export const plain = format((value) =>
  Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 12 }),
);
/** A rate: two significant digits, whole numbers from 10 on. */
export const rate = format((value) =>
  value < 10 ? String(Number(value.toPrecision(2))) : whole.format(value),
);
export const percent = format((value) => `${rate(value * 100)} %`);
/** A share of an event, as in its sentence: whole percent. */
export const share = format((value) => `${value > 0 && value < 0.005 ? "< 1" : Math.round(value * 100)} %`);
export const mebibytes = format((value) => `${whole.format(value)} MiB`);
/** A ratio: 1.04, 12.3, 283, and > 1,000 above this range. */
const ratio = format((value) => {
  if (value > 1000) return "> 1,000";
  return value < 1 ? value.toFixed(2) : value < 99.95 ? value.toPrecision(3) : whole.format(value);
});
export const severity = format((value) => `${ratio(value)} ×`);
/** As in reports: 43 ms, 70 s, 8.2 min; then 1 h 5 min. */
export const duration = format((seconds) => {
  const brief = (value) => String(Number(value.toFixed(value < 9.95 ? 1 : 0)));
  if (seconds > 0 && seconds < 1) return `${brief(1000 * seconds)} ms`;
  if (seconds < 120) return `${brief(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${brief(seconds / 60)} min`;
  return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
});
/** Local time with its zone. */
export const time = (iso) => (isNumber(Date.parse(iso)) ? when.format(new Date(iso)) : MISSING);
/** A recording's own clock, which has no time zone. */
export const clock = (iso) => iso.slice(0, 19).replace("T", " ");
/** Hardware and arithmetic in a line: `NVIDIA RTX 4000 Ada · bf16-mixed`. */
export const hardware = (device) =>
  [device?.name, device?.precision === "32" ? "fp32" : device?.precision].filter(Boolean).join(" · ");
/**
 * The evaluation of events against labels, as rows of name, value and note: faults found, compared with chance, and
 * false events per recorded time.
 */
export function faults({
  faults_total: total,
  faults_found: found,
  false_events: untrue,
  recorded_hours: hours,
  false_events_per_hour: perHour,
  event_recall_by_chance: mean,
  event_recall_by_chance_q95: most,
}) {
  if (!isNumber(untrue)) return [];
  const atMost = isNumber(most) ? `, at most ${rate(most * total)} in 95 % of trials` : "";
  const span = isNumber(perHour)
    ? `${rate(perHour)} per hour in ${duration(3600 * hours)}`
    : "recorded time unknown";
  const ofAll = [
    "Faults found",
    `${count(found)} of ${count(total)}`,
    `by chance ${rate(mean * total)}${atMost}`,
  ];
  return [...(total > 0 ? [ofAll] : []), ["False events", count(untrue), span]];
}

/** The two components of a score. */
export const COMPONENTS = { charts: "the control charts", model: "the model" };
/** Above this upper bound of false events per day, the calibration data is too short to state a rate. */
const MOST_PER_DAY = 1000;

/** The stated rate of false alarms of a threshold, in events per day; null if an export does not contain it. */
export function statedRate(threshold) {
  const { expected, false_events_per_day: requested, departure } = threshold ?? {};
  if (!expected) return null;
  if (departure) return "unknown: most scores have grown since the calibration";
  const { events_per_day_low: low, events_per_day_high: high } = expected;
  if (!isNumber(high)) return "unknown: the data has no time stamps";
  if (high > MOST_PER_DAY) return "unknown: the calibration data is too short to predict them";
  const limit = isNumber(requested) ? `; limit: ${rate(requested)}` : "";
  return `${low < 0.05 ? 0 : rate(low)} to ${rate(high)} false events per day (95 % interval)${limit}`;
}

/** The rate of events in normal operation with at least this multiple of the threshold as peak. */
export function rareness({ what_if: steps = [], threshold }, peak) {
  const step = steps.filter(({ threshold: value }) => value <= peak * (threshold?.value ?? 0)).at(-1);
  return isNumber(step?.per_day_high) ? falsePerDay(step, "such event") : null;
}

/** Events per day on the calibration data, and the upper bound. */
export function falsePerDay({ per_day: seen, per_day_high: high }, noun = "event") {
  if (!isNumber(high)) return "unknown: the data has no time stamps";
  const found = `${seen > 0 ? `${rate(seen)} ${noun}s per day` : `no ${noun}`} in the calibration data`;
  return high > MOST_PER_DAY
    ? `${found}, which is too short for an upper limit`
    : `${found}; at most ${rate(high)} per day (95 % interval)`;
}
