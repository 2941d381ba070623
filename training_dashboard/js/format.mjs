/** Numbers, times and durations as people read them; a missing value is an en dash. */

export const MISSING = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const when = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short",
});

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export const count = (value) => (isNumber(value) ? whole.format(value) : MISSING);

export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** Four significant digits; very small and very large values as 1.23e-4. */
export function figure(value) {
  if (!isNumber(value)) return MISSING;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

/** A score between 0 and 1, always with three decimals, so that columns line up. */
export const score = (value) => (isNumber(value) ? value.toFixed(3) : MISSING);

export const percent = (value) => (isNumber(value) ? `${Number((value * 100).toPrecision(3))} %` : MISSING);

/** Hardware and arithmetic in a line: `NVIDIA RTX 4000 Ada · bf16-mixed`. */
export function hardware(device) {
  const precision = device?.precision === "32" ? "32 bit" : device?.precision;
  return [device?.name, precision].filter(Boolean).join(" · ") || null;
}

/** Local time with its zone. */
export function time(iso) {
  const date = new Date(iso ?? NaN);
  return Number.isNaN(date.getTime()) ? MISSING : when.format(date);
}

export function duration(seconds) {
  if (!isNumber(seconds)) return MISSING;
  if (seconds < 60) return `${Number(seconds.toFixed(seconds < 10 ? 1 : 0))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
