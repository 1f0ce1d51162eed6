// Where a layer can be taken hold of, and what dragging does to its node. Pure: tokens in, nodes out.
//
// A handle is {id, at: "point", i, j} or a line to grab anywhere along it: {at: "key", j}, {at: "query", i} or
// {at: "diagonal", offset} (the line j - i = offset).

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

const BOX_HANDLES = [
  ["nw", 0, 0], ["n", 0, null], ["ne", 0, 1], ["w", null, 0], ["e", null, 1], ["sw", 1, 0], ["s", 1, null], ["se", 1, 1],
];

/** The box of a rect or at node, open sides taken to the ends of the plane. */
export function boxOf({ q, k }, plane) {
  return { q: q ?? [0, plane.q_start + plane.q_len], k: k ?? [0, plane.kv_len] };
}

/** Every straight edge of a node: {axis: "query" | "key" | "diagonal", at}. What other layers snap to and outlines show. */
export function edgesOf(node) {
  const edges = [];
  const push = (axis, ...values) => values.forEach((at) => at !== null && at !== undefined && edges.push({ axis, at }));
  switch (node.type) {
    case "rect":
    case "at":
      push("query", ...(node.q ?? []));
      push("key", ...(node.k ?? []));
      break;
    case "window":
      push("diagonal", node.left === null ? null : -node.left, node.right === null ? null : node.right + 1);
      break;
    case "band": push("diagonal", node.lo, node.hi); break;
    case "causal": push("diagonal", 1); break;
    case "anticausal": push("diagonal", 0); break;
    case "prefix":
    case "sink": push("key", node.n); break;
    case "suffix": push("key", node.start); break;
    case "global_tokens": push("key", ...node.ranges.flat()); push("query", ...node.ranges.flat()); break;
    case "documents": {
      if (!node.lengths) break;
      let end = 0;
      for (const length of node.lengths) {
        end += length;
        push("key", end);
        push("query", end);
      }
      break;
    }
    case "not": return edgesOf(node.arg);
    default:
  }
  return edges;
}

export function handlesOf(node, plane) {
  switch (node.type) {
    case "rect":
    case "at": {
      const { q, k } = boxOf(node, plane);
      return BOX_HANDLES.filter(([, v, h]) => (v === null || node.q) && (h === null || node.k)).map(([id, v, h]) => ({
        id, at: "point", i: v === null ? (q[0] + q[1]) / 2 : q[v], j: h === null ? (k[0] + k[1]) / 2 : k[h],
      }));
    }
    case "window":
      return [
        ...(node.left === null ? [] : [{ id: "left", at: "diagonal", offset: -node.left }]),
        ...(node.right === null ? [] : [{ id: "right", at: "diagonal", offset: node.right + 1 }]),
      ];
    case "band":
      return ["lo", "hi"].filter((id) => node[id] !== null).map((id) => ({ id, at: "diagonal", offset: node[id] }));
    case "prefix":
    case "sink": return [{ id: "n", at: "key", j: node.n }];
    case "suffix": return [{ id: "start", at: "key", j: node.start }];
    case "global_tokens":
      return node.ranges.flatMap((range, n) => range.map((j, side) => ({ id: `${n}.${side}`, at: "key", j })));
    case "documents": {
      if (!node.lengths) return [];
      let end = 0;
      return node.lengths.map((length, n) => {
        end += length;
        return { id: `${n}`, at: "point", i: end, j: end };
      });
    }
    case "not": return handlesOf(node.arg, plane);
    default: return [];
  }
}

/** The node after its handle was dragged to (i, j), whole tokens. */
export function dragHandle(node, id, i, j, plane) {
  switch (node.type) {
    case "rect":
    case "at": {
      const next = { ...node };
      const end = plane.q_start + plane.q_len;
      if (id.includes("n") || id.includes("s")) next.q = draggedSide(node.q, id.includes("n") ? 0 : 1, clamp(i, 0, end));
      if (id.includes("w") || id.includes("e")) next.k = draggedSide(node.k, id.includes("w") ? 0 : 1, clamp(j, 0, plane.kv_len));
      return next;
    }
    case "window": {
      const value = id === "left" ? i - j : j - i - 1;
      return aroundDiagonal({ ...node, [id]: id === "left" ? Math.max(value, -(node.right ?? value)) : Math.max(value, -(node.left ?? value)) });
    }
    case "band": {
      const offset = j - i;
      if (id === "lo") return { ...node, lo: node.hi === null ? offset : Math.min(offset, node.hi - 1) };
      return { ...node, hi: node.lo === null ? offset : Math.max(offset, node.lo + 1) };
    }
    case "prefix":
    case "sink": return { ...node, n: clamp(j, 0, plane.kv_len) };
    case "suffix": return { ...node, start: clamp(j, 0, plane.kv_len) };
    case "global_tokens": {
      const [n, side] = id.split(".").map(Number);
      const ranges = node.ranges.map((range, m) => (m === n ? draggedSide(range, side, clamp(j, 0, plane.kv_len)) : range));
      return { ...node, ranges };
    }
    case "documents": return movedBoundary(node, Number(id), Math.round((i + j) / 2));
    case "not": return { ...node, arg: dragHandle(node.arg, id, i, j, plane) };
    default: return node;
  }
}

/** One end of a half-open range moved; it stays at least one long. */
function draggedSide([start, stop], side, to) {
  return side === 0 ? [Math.min(to, stop - 1), stop] : [start, Math.max(to, start + 1)];
}

/** Moves the end of document n; the next document gives or takes what it gains, the last one just grows. */
function movedBoundary(node, n, to) {
  const lengths = node.lengths.slice();
  const start = lengths.slice(0, n).reduce((sum, length) => sum + length, 0);
  const isLast = n === lengths.length - 1;
  const limit = isLast ? Infinity : start + lengths[n] + lengths[n + 1];
  const end = clamp(to, start, limit);
  if (!isLast) lengths[n + 1] = limit - end;
  lengths[n] = end - start;
  return { ...node, lengths };
}

/** Splits the document that holds position `at`; the documents as they are when it is a boundary already or lies outside. */
export function splitDocument(node, at) {
  let start = 0;
  for (const [n, length] of node.lengths.entries()) {
    if (at > start && at < start + length) {
      return { ...node, lengths: [...node.lengths.slice(0, n), at - start, start + length - at, ...node.lengths.slice(n + 1)] };
    }
    start += length;
  }
  return node;
}

/** The node moved by whole tokens, kept inside the plane; null when it has no place of its own. */
export function moveNode(node, di, dj, plane) {
  const end = plane.q_start + plane.q_len;
  switch (node.type) {
    case "rect":
    case "at": {
      const q = node.q && shifted(node.q, di, end);
      const k = node.k && shifted(node.k, dj, plane.kv_len);
      return { ...node, q, k };
    }
    case "window": {
      const by = dj - di;
      return aroundDiagonal({ ...node, left: node.left === null ? null : node.left - by, right: node.right === null ? null : node.right + by });
    }
    case "band": {
      const by = dj - di;
      return { ...node, lo: node.lo === null ? null : node.lo + by, hi: node.hi === null ? null : node.hi + by };
    }
    case "prefix":
    case "sink": return { ...node, n: clamp(node.n + dj, 0, plane.kv_len) };
    case "suffix": return { ...node, start: clamp(node.start + dj, 0, plane.kv_len) };
    case "global_tokens": return { ...node, ranges: node.ranges.map((range) => shifted(range, dj, plane.kv_len)) };
    case "not": {
      const arg = moveNode(node.arg, di, dj, plane);
      return arg && { ...node, arg };
    }
    default: return null;
  }
}

/** A window holds the diagonal; one that was moved off it is a band. */
export function aroundDiagonal({ left, right, ...rest }) {
  if ((left ?? 0) >= 0 && (right ?? 0) >= 0) return { ...rest, left, right };
  return { ...rest, type: "band", lo: left === null ? null : -left, hi: right === null ? null : right + 1 };
}

function shifted([start, stop], by, limit) {
  const move = clamp(by, -start, Math.max(-start, limit - stop));
  return [start + move, stop + move];
}

/** The node that a draw tool makes from a drag that began at a and is at b: points {i, j}, whole tokens. */
export function drawnNode(tool, a, b, plane) {
  const end = plane.q_start + plane.q_len;
  const range = (x, y, limit) => {
    const low = clamp(Math.min(x, y), 0, limit - 1);
    return [low, clamp(Math.max(x, y), low + 1, limit)];
  };
  const q = range(a.i, b.i, end);
  const k = range(a.j, b.j, plane.kv_len);
  switch (tool) {
    case "rect": return { type: "rect", q, k };
    case "causal": return { type: "at", mask: { type: "causal" }, q, k };
    case "band": {
      const [lo, hi] = [a.j - a.i, b.j - b.i].sort((x, y) => x - y);
      return { type: "band", lo, hi: Math.max(hi, lo + 1) };
    }
    case "window": return { type: "window", left: Math.max(0, b.i - b.j), right: 0 };
    case "prefix": return { type: "prefix", n: clamp(b.j, 1, plane.kv_len) };
    case "documents": {
      const total = Math.min(end, plane.kv_len);
      const at = clamp(Math.round((b.i + b.j) / 2), 1, total);
      return { type: "documents", lengths: at < total ? [at, total - at] : [total] };
    }
    default: return null;
  }
}

/**
 * The nearest place to snap `value` to within `reach` tokens: an edge of another layer, then a multiple of the tile,
 * then a power of two. Returns {value, why} with why "" when nothing is near.
 */
export function snap(value, { edges = [], tile, reach, limit = Infinity }) {
  const kinds = [
    ["edge", edges],
    ["plane", [0, limit].filter(Number.isFinite)],
    ["tile", tile ? [Math.round(value / tile) * tile] : []],
    ["2ⁿ", value > 0 ? [2 ** Math.round(Math.log2(value))] : []],
  ];
  for (const [why, places] of kinds) {
    let best = null;
    for (const place of places) if (best === null || Math.abs(place - value) < Math.abs(best - value)) best = place;
    if (best !== null && Math.abs(best - value) <= reach) return { value: best, why };
  }
  return { value: Math.round(value), why: "" };
}
