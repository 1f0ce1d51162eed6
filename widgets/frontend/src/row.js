// The keys that one query sees: sorted, disjoint, non-touching half-open intervals, flat in one Int32Array
// [start, stop, start, stop, …]. Every set operation is one merge of two such rows into a third.

export class Row {
  constructor(capacity = 32) {
    this.data = new Int32Array(capacity);
    this.n = 0; // numbers in use: two an interval
  }

  clear() {
    this.n = 0;
    return this;
  }

  /** Appends [start, stop). Pieces must come in order of start; overlapping and touching ones are joined. */
  add(start, stop) {
    if (stop <= start) return;
    const { n } = this;
    if (n > 0 && start <= this.data[n - 1]) {
      if (stop > this.data[n - 1]) this.data[n - 1] = stop;
      return;
    }
    if (n + 2 > this.data.length) {
      const grown = new Int32Array(this.data.length * 2);
      grown.set(this.data);
      this.data = grown;
    }
    this.data[n] = start;
    this.data[n + 1] = stop;
    this.n = n + 2;
  }

  /** How many keys the row sees. */
  get count() {
    let sum = 0;
    for (let p = 0; p < this.n; p += 2) sum += this.data[p + 1] - this.data[p];
    return sum;
  }

  has(key) {
    let low = 0;
    let high = this.n >> 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.data[2 * middle + 1] <= key) low = middle + 1;
      else high = middle;
    }
    return 2 * low < this.n && this.data[2 * low] <= key;
  }

  /** [[start, stop], …] */
  pairs() {
    const list = [];
    for (let p = 0; p < this.n; p += 2) list.push([this.data[p], this.data[p + 1]]);
    return list;
  }
}

export function union(a, b, out) {
  out.n = 0;
  let p = 0;
  let r = 0;
  while (p < a.n || r < b.n) {
    if (r >= b.n || (p < a.n && a.data[p] <= b.data[r])) {
      out.add(a.data[p], a.data[p + 1]);
      p += 2;
    } else {
      out.add(b.data[r], b.data[r + 1]);
      r += 2;
    }
  }
  return out;
}

export function intersection(a, b, out) {
  out.n = 0;
  let p = 0;
  let r = 0;
  while (p < a.n && r < b.n) {
    out.add(Math.max(a.data[p], b.data[r]), Math.min(a.data[p + 1], b.data[r + 1]));
    if (a.data[p + 1] < b.data[r + 1]) p += 2;
    else r += 2;
  }
  return out;
}

export function difference(a, b, out) {
  out.n = 0;
  let r = 0;
  for (let p = 0; p < a.n; p += 2) {
    let start = a.data[p];
    const stop = a.data[p + 1];
    while (r < b.n && b.data[r + 1] <= start) r += 2;
    for (let s = r; s < b.n && b.data[s] < stop; s += 2) {
      out.add(start, b.data[s]);
      start = Math.max(start, b.data[s + 1]);
    }
    out.add(start, stop);
  }
  return out;
}

export function complement(a, size, out) {
  out.n = 0;
  let start = 0;
  for (let p = 0; p < a.n; p += 2) {
    out.add(start, Math.min(a.data[p], size));
    start = a.data[p + 1];
  }
  out.add(start, size);
  return out;
}

/** Moves a row by `keys` and crops it to [low, high). */
export function shiftInto(a, keys, low, high, out) {
  out.n = 0;
  for (let p = 0; p < a.n; p += 2) out.add(Math.max(low, a.data[p] + keys), Math.min(high, a.data[p + 1] + keys));
  return out;
}

/** Sorts pieces that may overlap, in any order, into a row cropped to [0, size). */
export function rowOf(pieces, size) {
  const out = new Row();
  for (const [start, stop] of [...pieces].sort((x, y) => x[0] - y[0])) out.add(Math.max(0, start), Math.min(size, stop));
  return out;
}
