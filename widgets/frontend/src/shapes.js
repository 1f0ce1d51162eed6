// What the Add menu offers: regions made to fit the plane, with a small drawing of each.

/** [{name, label, hint, node(plane)}] */
export const SHAPES = [
  { name: "causal", label: "Causal", hint: "key ≤ query", node: () => ({ type: "causal" }) },
  { name: "window", label: "Sliding window", hint: "the last keys before each query", node: ({ kv_len }) => ({ type: "window", left: even(kv_len / 8), right: 0 }) },
  { name: "band", label: "Band", hint: "a stripe along the diagonal", node: ({ kv_len }) => ({ type: "band", lo: -even(kv_len / 4), hi: -even(kv_len / 8) }) },
  { name: "rect", label: "Rectangle", hint: "a range of queries × a range of keys", node: (p) => ({ type: "rect", q: middle(p.q_start, p.q_len), k: middle(0, p.kv_len) }) },
  { name: "at", label: "Causal box", hint: "a causal triangle anywhere", node: (p) => ({ type: "at", mask: { type: "causal" }, q: middle(p.q_start, p.q_len), k: middle(0, p.kv_len) }) },
  { name: "documents", label: "Documents", hint: "packed sequences", node: (p) => ({ type: "documents", lengths: quarters(Math.min(p.q_start + p.q_len, p.kv_len)) }) },
  { name: "prefix", label: "Prefix", hint: "everybody sees the first keys", node: ({ kv_len }) => ({ type: "prefix", n: even(kv_len / 16) }) },
  { name: "sink", label: "Attention sink", hint: "the first keys, once reached", node: () => ({ type: "sink", n: 4 }) },
  { name: "suffix", label: "Suffix", hint: "everybody sees the last keys", node: ({ kv_len }) => ({ type: "suffix", start: kv_len - even(kv_len / 16) }) },
  { name: "global", label: "Global tokens", hint: "see all, seen by all", node: () => ({ type: "global_tokens", ranges: [[0, 64]] }) },
  { name: "strided", label: "Strided", hint: "every n-th key", node: () => ({ type: "strided", step: 64, phase: 0 }) },
  { name: "tiles", label: "Tile matrix", hint: "any pattern of squares", node: (p) => ({ type: "tiles", q_size: even(p.q_len / 4), k_size: even(p.kv_len / 4), rows: ["1000", "1100", "0110", "1011"] }) },
  { name: "disk", label: "Grid disk", hint: "2-D image tokens within a radius", node: (p) => ({ type: "grid", shape: square(p), kind: "disk", radius: 8 }) },
  { name: "box", label: "Grid box", hint: "2-D image tokens within a box", node: (p) => ({ type: "grid", shape: square(p), kind: "box", radii: [4, 4] }) },
  { name: "neighborhood", label: "Neighbourhood", hint: "a window that keeps its size at the border", node: (p) => ({ type: "grid", shape: square(p), kind: "neighborhood", size: [9, 9], dilation: [1, 1], causal: [false, false] }) },
  { name: "full", label: "Everything", hint: "every pair", node: () => ({ type: "full" }) },
];

function even(value) {
  return Math.max(1, 2 ** Math.round(Math.log2(Math.max(1, value))));
}

function middle(start, length) {
  return [start + Math.floor(length / 4), start + Math.max(Math.floor(length / 4) + 1, Math.floor((length * 3) / 4))];
}

function quarters(total) {
  const quarter = Math.floor(total / 4);
  return [quarter, quarter, quarter, total - 3 * quarter];
}

/** The largest grid of about square shape, sides a multiple of 4 where it can be, that fits. */
function square({ q_start, q_len, kv_len }) {
  const total = Math.min(q_start + q_len, kv_len);
  let side = Math.floor(Math.sqrt(total));
  if (side >= 8) side -= side % 4;
  return [side, Math.max(1, Math.floor(total / side))];
}
