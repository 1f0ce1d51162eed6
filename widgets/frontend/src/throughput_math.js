// What the throughput panel computes before it draws: pure functions, tested under Node.

/** The unit that suits these rates, which are in TFLOP/s: [factor, name]. */
export function rateUnit(values) {
  const most = Math.max(0, ...values.filter(Number.isFinite));
  return most >= 1 ? [1, "TFLOP/s"] : [1000, "GFLOP/s"];
}

/** Milliseconds as text, with a unit that suits. */
export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  const [value, unit] = ms >= 1000 ? [ms / 1000, "s"] : ms >= 1 ? [ms, "ms"] : [ms * 1000, "µs"];
  return `${significant(value)} ${unit}`;
}

/** "1 round", "2 rounds". */
export const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

/** Three figures; whole numbers above that. */
export function significant(value) {
  if (value === 0) return "0";
  const digits = 2 - Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.min(Math.max(digits, 0), 6));
}

/** Round steps from 0 or near `low` up to `high`: at most `count` of them, all multiples of 1, 2 or 5. */
export function ticks(low, high, count) {
  if (!(high > low) || count < 1) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((each) => each >= rough * (1 - 1e-9));
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) found.push(Number((n * step).toPrecision(12)));
  return found;
}

/** The range that a plot of samples shows: all of them and a margin; from 0 only where the margin reaches it. */
export function span(samples) {
  if (samples.length === 0) return [0, 1];
  let [low, high] = [Infinity, -Infinity];
  for (const value of samples) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const margin = Math.max((high - low) * 0.12, high * 0.02);
  return [Math.max(0, low - margin), high + margin];
}

/** Columns of a plot with room for `warmup` grey samples before the timed ones: x of each, in [0, 1]. */
export function columns(warmup, rounds) {
  const all = Math.max(warmup + rounds, 1);
  return { warmup: Array.from({ length: warmup }, (_, n) => (n + 0.5) / all), rounds: Array.from({ length: rounds }, (_, n) => (warmup + n + 0.5) / all), edge: warmup / all };
}

/** A round's drift as a colour's strength in [-1, 1]: half a percent is nothing, ten percent is all. */
export function strength(drift) {
  const size = Math.min(Math.max(Math.abs(drift) - 0.005, 0) / 0.095, 1);
  return size === 0 ? 0 : Math.sign(drift) * size;
}

/** Words for a ratio to the baseline: what was found, how sure. */
export function ratioText(ratio) {
  const text = (value) => value.toFixed(value < 10 ? 3 : 1);
  return ratio.n < 2 ? `${text(ratio.median)}×` : `${text(ratio.median)}× [${text(ratio.low)}, ${text(ratio.high)}]`;
}

/** Why a contender can't run on a device in a direction ("both" needs both); "" if nothing speaks against it. */
export function reasonAgainst(contender, device, direction) {
  const reasons = contender.absent?.[device] ?? {};
  const wanted = direction === "both" ? ["forward", "backward"] : [direction];
  return wanted.map((each) => reasons[each]).find(Boolean) ?? "";
}

/** A reason cut at the command that installs what is missing: [before, command, after]. */
export function installCommand(reason) {
  const found = /^(.*?)\(?(pip install [^()]*?)\)?$/.exec(reason);
  return found ? [found[1].trim(), found[2].trim()] : [reason, ""];
}

/** Whether the kernel behind a widget is gone; false where the front end does not say. */
export function kernelGone(kernel) {
  if (!kernel) return false;
  return Boolean(kernel.isDisposed) || kernel.connectionStatus === "disconnected"
    || ["dead", "restarting", "autorestarting", "terminating", "unknown"].includes(kernel.status);
}
