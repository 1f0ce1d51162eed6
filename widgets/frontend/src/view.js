// The view of the plane: which tokens lie where on the screen. Pure. x is the key axis, y the query axis, both in CSS
// pixels from the corner of the plot; `left` and `top` are the key and query at that corner.

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const MAX_TOKEN_PX = 48;
const PAD_PX = 10; // room around the fitted plane, for the ends of the rulers and the outermost handles

export class View {
  constructor() {
    Object.assign(this, { left: 0, top: 0, sx: 1, sy: 1, width: 1, height: 1 });
    this.plane = { q_len: 1, kv_len: 1, q_start: 0 };
  }

  x(key) { return (key - this.left) * this.sx; }
  y(query) { return (query - this.top) * this.sy; }
  key(x) { return this.left + x / this.sx; }
  query(y) { return this.top + y / this.sy; }

  /** Shows the whole plane; both axes at one scale unless the plane is much longer than it is wide. */
  fit() {
    const { q_len, kv_len, q_start } = this.plane;
    const [sx, sy] = [(this.width - 2 * PAD_PX) / kv_len, (this.height - 2 * PAD_PX) / q_len].map((scale) => Math.max(scale, 1e-6));
    const same = Math.max(sx, sy) / Math.min(sx, sy) <= 3;
    this.sx = Math.min(MAX_TOKEN_PX, same ? Math.min(sx, sy) : sx);
    this.sy = Math.min(MAX_TOKEN_PX, same ? Math.min(sx, sy) : sy);
    this.left = -(this.width / this.sx - kv_len) / 2;
    this.top = q_start - (this.height / this.sy - q_len) / 2;
    this.fitted = true;
    return this;
  }

  /** Zooms by `factor` with the point (x, y) held in place. */
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const [key, query] = [this.key(x), this.query(y)];
    const { q_len, kv_len } = this.plane;
    const least = 0.5 * Math.min(this.width / kv_len / this.sx, this.height / q_len / this.sy);
    const most = MAX_TOKEN_PX / Math.max(this.sx, this.sy);
    const by = clamp(factor, Math.min(1, least), Math.max(1, most));
    this.sx *= by;
    this.sy *= by;
    this.left = key - x / this.sx;
    this.top = query - y / this.sy;
    this.fitted = false;
    return this.hold();
  }

  pan(dx, dy) {
    this.left -= dx / this.sx;
    this.top -= dy / this.sy;
    this.fitted = false;
    return this.hold();
  }

  /** Shows [q0, q1) × [k0, k1) with a margin around it. */
  show(q, k, margin = 0.15) {
    const scale = Math.min(this.width / (k[1] - k[0]), this.height / (q[1] - q[0])) / (1 + 2 * margin);
    this.sx = Math.min(MAX_TOKEN_PX, scale);
    this.sy = Math.min(MAX_TOKEN_PX, scale);
    this.left = (k[0] + k[1]) / 2 - this.width / this.sx / 2;
    this.top = (q[0] + q[1]) / 2 - this.height / this.sy / 2;
    this.fitted = false;
    return this.hold();
  }

  /** Keeps some of the plane in sight. */
  hold() {
    const { q_len, kv_len, q_start } = this.plane;
    const [w, h] = [this.width / this.sx, this.height / this.sy];
    this.left = clamp(this.left, -0.8 * w, kv_len - 0.2 * w);
    this.top = clamp(this.top, q_start - 0.8 * h, q_start + q_len - 0.2 * h);
    return this;
  }
}

/** Round numbers for a ruler: steps of a power of two tokens at least `gap` pixels apart. */
export function ticks(from, to, scale, gap) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(gap / scale)));
  const list = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) list.push(at);
  return list;
}

/** 4096 → "4K", 1000 → "1000": whole multiples of 1024, else the number itself. */
export function short(count) {
  for (const [unit, size] of [["M", 1048576], ["K", 1024]]) {
    if (count >= size && count % size === 0) return `${count / size}${unit}`;
  }
  return `${count}`;
}

/** "4k", "2^12", "128*32", "-5", "" (null: open) → a whole number; undefined when it is none. */
export function parseCount(text) {
  const clean = text.trim().toLowerCase().replace(/[\s_,]/g, "");
  if (clean === "" || clean === "all" || clean === "∞") return null;
  const sign = clean.startsWith("-") ? -1 : 1;
  let product = 1;
  for (const factor of clean.replace(/^[+-]/, "").split(/[*×]/)) {
    const found = /^(\d+(?:\.\d+)?)(k|m)?(?:\^(\d+))?$/.exec(factor);
    if (!found) return undefined;
    const base = Number(found[1]) * { k: 1024, m: 1048576 }[found[2]] || Number(found[1]);
    product *= found[3] ? base ** Number(found[3]) : base;
  }
  return Number.isInteger(product) ? sign * product : undefined;
}
