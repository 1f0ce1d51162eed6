// The numbers of a node, as fields that a form can show: {label, hint, text, set(text) → node}. Pure; one description
// serves the properties panel and the table of regions.

import { aroundDiagonal } from "./geometry.js";
import { parseCount } from "./view.js";

export class FieldError extends Error {}

const POSITION_LIMIT = 2 ** 31 - 1; // what Python takes, either way
const LIST_LIMIT = 1 << 24;

/** The whole number in a text, within limits; null where the field may be open and the text is empty. */
export function count(text, { least = 0, most = POSITION_LIMIT, open = false } = {}) {
  const value = parseCount(text);
  if (value === undefined) throw new FieldError(`"${text}" is no whole number; write 4096, 4k, 2^12 or 32*128`);
  if (value === null) {
    if (open) return null;
    throw new FieldError("a number is needed here");
  }
  if (value < least) throw new FieldError(`${value} is too small; at least ${least}`);
  if (value > most) throw new FieldError(`${value} is too large; at most ${most}`);
  return value;
}

const shown = (value) => (value === null || value === undefined ? "" : `${value}`);

function number(node, key, label, { least = 0 } = {}) {
  return { label, hint: "", text: shown(node[key]), set: (text) => ({ ...node, [key]: count(text, { least }) }) };
}

/** A distance from the diagonal, which may be open; `checked` makes a node of what was typed. */
function distance(node, key, label, checked) {
  const set = (text) => checked({ ...node, [key]: count(text, { least: -POSITION_LIMIT, open: true }) });
  return { label, hint: "empty: open", text: shown(node[key]), set };
}

/** Below 0 a side of a window lies off the diagonal, and the window becomes a band. */
function checkedWindow(node) {
  const { left, right } = node;
  if (left !== null && right !== null && left + right < 0) throw new FieldError(`${left} before and ${right} after hold nothing; together at least 0`);
  return aroundDiagonal(node);
}

function checkedBand(node) {
  const { lo, hi } = node;
  if (lo !== null && hi !== null && lo > hi) throw new FieldError(`${lo} … ${hi}: the end lies before the start`);
  return node;
}

/** The two ends of a half-open range; both empty means all. */
function range(node, key, label) {
  const [start, stop] = node[key] ?? [null, null];
  const open = node.type === "rect";
  const make = (side) => (text) => {
    const value = count(text, { open });
    if (value === null) return { ...node, [key]: null };
    const next = [start ?? 0, stop ?? value + 1];
    next[side] = value;
    if (next[1] <= next[0]) throw new FieldError(`${label}: ${next[0]} … ${next[1]} holds nothing; the stop lies after the start`);
    return { ...node, [key]: next };
  };
  return [
    { label: `${label} from`, hint: open ? "empty: all" : "", text: shown(start), set: make(0) },
    { label: `${label} to`, hint: open ? "empty: all" : "", text: shown(stop), set: make(1) },
  ];
}

function list(node, key, label, { least = 0, hint } = {}) {
  return {
    label, hint, wide: true, text: compact(node[key]),
    set(text) {
      const values = text.split(/[,\s]+/).filter(Boolean).flatMap((part) => repeated(part, least));
      if (values.length === 0) throw new FieldError(`${label}: at least one number is needed`);
      return { ...node, [key]: values };
    },
  };
}

/** "512x4" stands for four times 512: packed documents are often alike. */
function repeated(part, least) {
  const [value, times] = part.split(/[x×]/);
  return new Array(times ? count(times, { least: 1, most: LIST_LIMIT }) : 1).fill(count(value, { least }));
}

function compact(values) {
  const parts = [];
  for (let n = 0; n < values.length; ) {
    let end = n;
    while (end < values.length && values[end] === values[n]) end += 1;
    parts.push(end - n > 2 ? `${values[n]}x${end - n}` : values.slice(n, end).join(", "));
    n = end;
  }
  return parts.join(", ");
}

const AXES = { 2: ["height", "width"], 3: ["time", "height", "width"] };

function gridFields(node) {
  const axes = AXES[node.shape.length];
  const each = (key, label, least) => axes.map((axis, n) => ({
    label: `${label} ${axis}`, text: shown(node[key]?.[n] ?? least),
    set: (text) => ({ ...node, [key]: axes.map((_, m) => (m === n ? count(text, { least }) : node[key]?.[m] ?? least)) }),
  }));
  const shape = axes.map((axis, n) => ({
    label: axis, text: shown(node.shape[n]),
    set: (text) => ({ ...node, shape: node.shape.map((length, m) => (m === n ? count(text, { least: 1 }) : length)) }),
  }));
  if (node.kind === "disk") return [...shape, number(node, "radius", "radius", { least: 1 })];
  if (node.kind === "box") return [...shape, ...each("radii", "radius", 0)];
  if (node.kind === "neighborhood") return [...shape, ...each("size", "window", 1), ...each("dilation", "dilation", 1)];
  return shape;
}

const FIELDS_OF = {
  rect: (node) => [...range(node, "q", "query"), ...range(node, "k", "key")],
  at: (node) => [...range(node, "q", "query"), ...range(node, "k", "key"), ...nested(node, "mask")],
  window: (node) => [distance(node, "left", "keys before", checkedWindow), distance(node, "right", "keys after", checkedWindow)],
  band: (node) => [distance(node, "lo", "key − query from", checkedBand), distance(node, "hi", "key − query to", checkedBand)],
  prefix: (node) => [number(node, "n", "keys")],
  sink: (node) => [number(node, "n", "keys")],
  suffix: (node) => [number(node, "start", "first key")],
  strided: (node) => [number(node, "step", "step", { least: 1 }), number(node, "phase", "phase")],
  documents: (node) => [node.lengths ? list(node, "lengths", "lengths", { hint: "512x4, 300" }) : list(node, "ids", "ids", { least: -1, hint: "-1: padding" })],
  global_tokens: (node) => [{
    label: "ranges", hint: "0-64, 100-120", wide: true, text: node.ranges.map(([a, b]) => `${a}-${b}`).join(", "),
    set(text) {
      const ranges = text.split(",").filter((part) => part.trim()).map((part) => {
        const ends = part.split(/[-–…]/).map((end) => count(end));
        const [start, stop] = ends.length === 2 ? ends : [ends[0], ends[0] + 1];
        if (stop <= start) throw new FieldError(`"${part.trim()}" holds nothing; the stop lies after the start`);
        return [start, stop];
      });
      if (ranges.length === 0) throw new FieldError("at least one range is needed");
      return { ...node, ranges };
    },
  }],
  tiles: (node) => [number(node, "q_size", "query size", { least: 1 }), number(node, "k_size", "key size", { least: 1 }), {
    label: "rows", hint: "0110 1001", wide: true, text: node.rows.join(" "),
    set(text) {
      const rows = text.trim().split(/[\s,]+/);
      if (!rows.every((row) => /^[01]+$/.test(row) && row.length === rows[0].length)) {
        throw new FieldError("rows are words of 0 and 1, all equally long");
      }
      return { ...node, rows };
    },
  }],
  tree: (node) => [list(node, "parents", "parents", { least: -1, hint: "-1: root" })],
  repeat: (node) => [list(node, "sizes", "sizes", { hint: "512x4" }), ...(node.mask ? nested(node, "mask") : [])],
  not: (node) => nested(node, "arg"),
  grid: gridFields,
};

function nested(node, key) {
  return fieldsOf(node[key]).map((field) => ({ ...field, set: (text) => ({ ...node, [key]: field.set(text) }) }));
}

/** The fields of a node; none for a mask that has no numbers of its own. */
export function fieldsOf(node) {
  return FIELDS_OF[node.type]?.(node) ?? [];
}

/** A node in a few words, for the list, the table and the announcements. */
export function describe(node) {
  const span = (values) => (values ? `${values[0]}–${values[1] - 1}` : "all");
  const words = {
    rect: () => `queries ${span(node.q)} × keys ${span(node.k)}`,
    at: () => `${describe(node.mask)} in queries ${span(node.q)} × keys ${span(node.k)}`,
    window: () => `${node.left ?? "all"} before, ${node.right ?? "all"} after`,
    band: () => `${node.lo ?? "−∞"} ≤ key − query < ${node.hi ?? "∞"}`,
    prefix: () => `first ${node.n} keys`,
    sink: () => `first ${node.n} keys, causal`,
    suffix: () => `keys from ${node.start}`,
    documents: () => (node.lengths ? `${node.lengths.length} documents` : "by ids"),
    global_tokens: () => node.ranges.map(span).join(", "),
    strided: () => `every ${node.step}, phase ${node.phase}`,
    tiles: () => `${node.rows.length} × ${node.rows[0]?.length ?? 0} of ${node.q_size} × ${node.k_size}`,
    grid: () => `${node.shape.join(" × ")} ${node.kind.replace("_", " ")}${node.radius ? ` r=${node.radius}` : ""}`,
    tree: () => `${node.parents.length} nodes`,
    explicit: () => `${node.start.length} intervals`,
    causal: () => "key ≤ query",
    anticausal: () => "key ≥ query",
    repeat: () => `${node.sizes.length} × ${node.mask ? describe(node.mask) : "masks"}`,
    not: () => `not: ${describe(node.arg)}`,
    and: () => `${node.args.length} intersected`,
    or: () => `${node.args.length} joined`,
    minus: () => "one less another",
  };
  return words[node.type]?.() ?? node.type;
}
