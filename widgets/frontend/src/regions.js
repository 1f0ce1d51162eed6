// A spec node becomes a region: {from, stop, row(i, out), until(i)}.
//   row(i, out)  writes the keys that query i sees into the Row `out` and returns it;
//   until(i)     the first query after i whose row may differ (rows between are equal: counted once, not one by one);
//   from, stop   outside these queries every row is empty.
// The meaning of each node is the Python package's: tests/masks/golden.json holds both to it.

import { Row, complement, difference, intersection, rowOf, shiftInto, union } from "./row.js";
import { gridRegion } from "./grids.js";

const NEVER = Number.MAX_SAFE_INTEGER;

/** The problem with a spec, in words for the person who wrote it. */
export class SpecError extends Error {}

// The fields of each node: "name?" may be left out. A node may always carry "name".
export const FIELDS = {
  full: [], empty: [], causal: [], anticausal: [],
  window: ["left", "right"], band: ["lo", "hi"], rect: ["q", "k"], prefix: ["n"], sink: ["n"], suffix: ["start"],
  global_tokens: ["ranges"], documents: ["lengths?", "ids?"], strided: ["step", "phase"],
  tiles: ["q_size", "k_size", "rows"], tree: ["parents"], explicit: ["row_ptr", "start", "stop"],
  grid: ["shape", "kind", "radius?", "radii?", "size?", "dilation?", "causal?", "axes?"],
  and: ["args"], or: ["args"], minus: ["args"], not: ["arg"],
  at: ["mask", "q", "k"], repeat: ["sizes", "mask?", "masks?"], take: ["mask", "q", "k"], transposed: ["mask"],
  per_batch: ["masks"], per_head: ["masks"],
};

/** Raises a SpecError that names an unknown type or field, or a missing one; looks into nested nodes. */
export function checkNode(node, where = "mask") {
  if (node === null || typeof node !== "object" || Array.isArray(node)) {
    throw new SpecError(`${where}: ${JSON.stringify(node)} is no mask node; expected {"type": …}`);
  }
  const fields = FIELDS[node.type];
  if (!fields) throw new SpecError(`${where}: unknown type ${JSON.stringify(node.type)}`);
  const allowed = fields.map((field) => field.replace("?", ""));
  for (const key of Object.keys(node)) {
    if (key !== "type" && key !== "name" && !allowed.includes(key)) {
      throw new SpecError(`${where}: ${node.type} has no field "${key}"; it has ${allowed.join(", ") || "none"}`);
    }
  }
  for (const field of fields) {
    if (!field.endsWith("?") && !(field in node)) throw new SpecError(`${where}: ${node.type} lacks the field "${field}"`);
  }
  for (const child of childrenOf(node)) checkNode(child, `${where} › ${node.type}`);
}

export function childrenOf(node) {
  const children = [...(node.masks ?? [])];
  if (node.mask) children.push(node.mask);
  if (node.arg) children.push(node.arg);
  if (["and", "or", "minus"].includes(node.type)) children.push(...node.args);
  return children;
}

/** Levels of nesting: 1 for a region without parts. */
export function depthOf(node) {
  return 1 + Math.max(0, ...childrenOf(node).map(depthOf));
}

/** The region of a node on the plane of `plane.rows` queries (counted from 0) × `plane.keys` keys. */
export function compileRegion(node, plane) {
  const make = MAKERS[node.type];
  if (!make) throw new SpecError(`unknown type ${JSON.stringify(node.type)}`);
  return make(node, plane);
}

function region(row, { from = 0, stop = NEVER, until = (i) => i + 1 } = {}) {
  return { from, stop, row, until };
}

/** One interval a row, [low(i), high(i)). */
function bounded(plane, low, high, options) {
  return region((i, out) => {
    out.n = 0;
    out.add(Math.max(0, low(i)), Math.min(plane.keys, high(i)));
    return out;
  }, options);
}

/** Rows that change only at the given queries; `pick(i)` is a ready-made Row or null. */
function stepped(starts, pick, options = {}) {
  const sorted = Float64Array.from(new Set(starts)).sort();
  const until = (i) => {
    let low = 0;
    let high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= i) low = middle + 1;
      else high = middle;
    }
    return low < sorted.length ? sorted[low] : NEVER;
  };
  return region((i, out) => copy(pick(i), out), { until, ...options });
}

function copy(row, out) {
  out.n = 0;
  if (row) for (let p = 0; p < row.n; p += 2) out.add(row.data[p], row.data[p + 1]);
  return out;
}

const constant = { until: () => NEVER };

const MAKERS = {
  full: (_, plane) => bounded(plane, () => 0, () => plane.keys, constant),
  empty: () => region((_, out) => out.clear(), { from: 0, stop: 0, ...constant }),
  causal: (_, plane) => bounded(plane, () => 0, (i) => i + 1),
  anticausal: (_, plane) => bounded(plane, (i) => i, () => plane.keys),
  window({ left, right }, plane) {
    const low = left === null ? () => 0 : (i) => i - left;
    const high = right === null ? () => plane.keys : (i) => i + right + 1;
    return bounded(plane, low, high);
  },
  band({ lo, hi }, plane) {
    const low = lo === null ? () => 0 : (i) => i + lo;
    const high = hi === null ? () => plane.keys : (i) => i + hi;
    return bounded(plane, low, high);
  },
  rect({ q, k }, plane) {
    const [low, high] = k ?? [0, plane.keys];
    const [from, stop] = q ?? [0, NEVER];
    const until = (i) => (i < from ? from : i < stop ? stop : NEVER);
    return bounded(plane, (i) => (i >= from && i < stop ? low : 0), (i) => (i >= from && i < stop ? high : 0), { from, stop, until });
  },
  prefix: ({ n }, plane) => bounded(plane, () => 0, () => n, constant),
  sink: ({ n }, plane) => bounded(plane, () => 0, (i) => Math.min(n, i + 1), { until: (i) => (i + 1 < n ? i + 1 : NEVER) }),
  suffix: ({ start }, plane) => bounded(plane, () => start, () => plane.keys, constant),
  global_tokens({ ranges }, plane) {
    const own = rowOf(ranges, Math.max(plane.keys, plane.rows));
    const seen = rowOf(ranges, plane.keys);
    const all = rowOf([[0, plane.keys]], plane.keys);
    return stepped(ranges.flat(), (i) => (own.has(i) ? all : seen));
  },
  documents: (node, plane) => (node.ids ? documentsByIds(node.ids, plane) : documentsByLengths(node.lengths, plane)),
  strided: ({ step, phase }, plane) => region((i, out) => {
    out.n = 0;
    for (let j = (((i - phase) % step) + step) % step; j < plane.keys; j += step) out.add(j, j + 1);
    return out;
  }, step === 1 ? constant : {}),
  tiles({ q_size, k_size, rows }, plane) {
    const made = rows.map((cells) => rowOf([...cells].flatMap((c, t) => (c === "1" ? [[t * k_size, (t + 1) * k_size]] : [])), plane.keys));
    return stepped(rows.map((_, t) => t * q_size).concat(rows.length * q_size), (i) => made[Math.floor(i / q_size)] ?? null,
      { stop: rows.length * q_size });
  },
  tree: ({ parents }, plane) => region((i, out) => {
    out.n = 0;
    const path = [];
    for (let node = i; node >= 0 && node < parents.length; node = parents[node]) path.push(node);
    for (const node of path.sort((a, b) => a - b)) if (node < plane.keys) out.add(node, node + 1);
    return out;
  }, { stop: parents.length }),
  explicit: ({ row_ptr, start, stop }, plane) => region((i, out) => {
    out.n = 0;
    for (let p = row_ptr[i]; p < row_ptr[i + 1]; p++) out.add(start[p], Math.min(stop[p], plane.keys));
    return out;
  }, { stop: row_ptr.length - 1 }),
  grid: (node, plane) => gridRegion(node, plane),
  or: ({ args }, plane) => folded(args, plane, union, true),
  and: ({ args }, plane) => folded(args, plane, intersection, false),
  minus: ({ args }, plane) => folded(args, plane, difference, true),
  not({ arg }, plane) {
    const inner = compileRegion(arg, plane);
    const held = new Row();
    return region((i, out) => complement(rowWithin(inner, i, held), plane.keys, out), { until: (i) => untilWithin(inner, i) });
  },
  at: ({ mask, q, k }, plane) => boxed(mask, q, k, plane),
  repeat({ sizes, mask, masks }, plane) {
    const starts = [];
    let total = 0;
    const boxes = sizes.map((size, n) => {
      starts.push(total);
      total += size;
      return boxed(masks ? masks[n] : mask, [total - size, total], [total - size, total], plane);
    });
    const boxOf = (i) => boxes[lastAtMost(starts, i)];
    return region((i, out) => (i < total ? boxOf(i).row(i, out) : out.clear()), {
      stop: total, until: (i) => (i < total ? boxOf(i).until(i) : NEVER),
    });
  },
  take: (node, plane) => taken(node, plane),
  transposed: ({ mask }, plane) => transposedRegion(mask, plane),
};

function rowWithin(inner, i, out) {
  return i < inner.from || i >= inner.stop ? out.clear() : inner.row(i, out);
}

function folded(args, plane, merge, skipEmpty) {
  const parts = args.map((arg) => compileRegion(arg, plane));
  let [result, held, spare] = [new Row(), new Row(), new Row()];
  const row = (i, out) => {
    rowWithin(parts[0], i, result);
    for (let p = 1; p < parts.length; p++) {
      rowWithin(parts[p], i, held);
      if (skipEmpty && held.n === 0) continue;
      merge(result, held, spare);
      [result, spare] = [spare, result];
    }
    return copy(result, out);
  };
  const until = (i) => parts.reduce((least, part) => Math.min(least, untilWithin(part, i)), NEVER);
  const froms = merge === difference ? [parts[0].from] : parts.map((part) => part.from);
  const stops = merge === difference ? [parts[0].stop] : parts.map((part) => part.stop);
  const [outer, inner] = merge === intersection ? [Math.max, Math.min] : [Math.min, Math.max];
  return region(row, { from: outer(...froms), stop: inner(...stops), until });
}

/** Like region.until, but knows that nothing happens outside [from, stop). */
export function untilWithin(part, i) {
  if (i < part.from) return part.from;
  if (i >= part.stop) return NEVER;
  return Math.min(part.until(i), part.stop);
}

/** The mask moved into a box: its own (0, 0) at the box's corner, nothing outside. */
function boxed(mask, [qStart, qStop], [kStart, kStop], plane) {
  const inner = compileRegion(mask, { rows: qStop - qStart, keys: kStop - kStart });
  const held = new Row();
  const row = (i, out) => {
    if (i < qStart || i >= qStop) return out.clear();
    return shiftInto(rowWithin(inner, i - qStart, held), kStart, kStart, Math.min(kStop, plane.keys), out);
  };
  const until = (i) => (i < qStart ? qStart : i >= qStop ? NEVER : Math.min(qStop, untilWithin(inner, i - qStart) + qStart));
  return region(row, { from: qStart, stop: qStop, until });
}

export function lastAtMost(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function documentsByLengths(lengths, plane) {
  const starts = [0];
  for (const length of lengths) starts.push(starts[starts.length - 1] + length);
  const total = starts[starts.length - 1];
  const row = (i, out) => {
    out.n = 0;
    if (i >= total) return out;
    const n = lastAtMost(starts, i);
    out.add(starts[n], Math.min(starts[n + 1], plane.keys));
    return out;
  };
  return region(row, { stop: total, until: (i) => (i < total ? starts[lastAtMost(starts, i) + 1] : NEVER) });
}

function documentsByIds(ids, plane) {
  const rows = new Map();
  ids.forEach((id, position) => {
    if (id < 0 || position >= plane.keys) return;
    if (!rows.has(id)) rows.set(id, new Row(4));
    rows.get(id).add(position, position + 1);
  });
  const starts = ids.flatMap((id, position) => (position === 0 || ids[position - 1] !== id ? [position] : []));
  return stepped([...starts, ids.length], (i) => rows.get(ids[i]) ?? null, { stop: ids.length });
}

/** Row i is the inner row q[i]; column j is the inner column k[j]. */
function taken({ mask, q, k }, plane) {
  const reach = (list, size) => (list ? list.reduce((most, at) => Math.max(most, at + 1), 0) : size);
  const inner = compileRegion(mask, { rows: reach(q, plane.rows), keys: reach(k, plane.keys) });
  const held = new Row();
  const row = (i, out) => {
    if (q && i >= q.length) return out.clear();
    rowWithin(inner, q ? q[i] : i, held);
    if (!k) return copy(held, out);
    out.n = 0;
    for (let j = 0; j < k.length && j < plane.keys; j++) if (held.has(k[j])) out.add(j, j + 1);
    return out;
  };
  return region(row, { stop: q ? q.length : NEVER });
}

/** Query i sees what the inner key i is seen by. The inner rows are swept once: where a key's column toggles, its run starts or ends. */
function transposedRegion(mask, plane) {
  const inner = compileRegion(mask, { rows: plane.keys, keys: plane.rows });
  const columns = Array.from({ length: plane.rows }, () => []); // toggles: inner queries at which the column changes
  let [last, next, left, right] = [new Row(), new Row(), new Row(), new Row()];
  for (let i = 0; i <= plane.keys; ) {
    if (i < plane.keys) rowWithin(inner, i, next);
    else next.clear();
    for (const change of [difference(last, next, left), difference(next, last, right)]) {
      for (let p = 0; p < change.n; p += 2) for (let c = change.data[p]; c < change.data[p + 1]; c++) columns[c].push(i);
    }
    [last, next] = [next, last];
    i = i < plane.keys ? Math.min(plane.keys, untilWithin(inner, i)) : i + 1;
  }
  return region((i, out) => {
    out.n = 0;
    for (let p = 0; p < columns[i].length; p += 2) out.add(columns[i][p], columns[i][p + 1]);
    return out;
  }, { stop: plane.rows });
}
