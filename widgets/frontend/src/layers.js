// The document: an ordered list of layers. A layer is {id, name, op, node, visible, locked, template?}; op is "add",
// "cut" or "intersect". The mask is the left fold of the visible layers over the empty mask.

import { checkNode, compileRegion, SpecError, untilWithin } from "./regions.js";
import { complement, difference, intersection, Row, union } from "./row.js";

export const OPS = ["add", "cut", "intersect"];
export const COMPOSITES = { or: "add", and: "intersect", minus: "cut" }; // what the later parts of such a node do to the first
const NEVER = Number.MAX_SAFE_INTEGER;

let counter = 0;
export function freshId() {
  counter += 1;
  return `L${Date.now().toString(36)}${counter.toString(36)}`;
}

export function makeLayer(node, { op = "add", name = "", ...rest } = {}) {
  return { id: freshId(), name: name || defaultName(node), op, node, visible: true, locked: false, ...rest };
}

const NAMES = {
  full: "Everything", empty: "Nothing", causal: "Causal", anticausal: "Anticausal", window: "Window", band: "Band",
  rect: "Rectangle", prefix: "Prefix", sink: "Sink", suffix: "Suffix", global_tokens: "Global tokens", documents: "Documents",
  strided: "Strided", tiles: "Tile matrix", tree: "Tree", explicit: "Explicit intervals", repeat: "Repeated", take: "Reordered",
  transposed: "Transposed", not: "Complement", and: "Group", or: "Group", minus: "Group",
};
const GRID_NAMES = {
  disk: "Grid disk", box: "Grid box", neighborhood: "Neighbourhood", axial: "Axial", causal_time: "Causal in time",
};

export function defaultName(node) {
  if (node.name) return node.name;
  if (node.type === "grid") return GRID_NAMES[node.kind] ?? "Grid";
  if (node.type === "at") return `${defaultName(node.mask)} in a box`;
  return NAMES[node.type] ?? node.type;
}

const LEVELS = 32; // what a fold may add to the depth of its layers; a spec is read to a depth of 100

/** The un-versioned node of the visible layers: what Python compiles, and design.py makes in the same way. */
export function foldNode(layers) {
  return folded(layers.filter((layer) => layer.visible)) ?? { type: "empty" };
}

/** The left fold. Where that nests too deep, what the lower half keeps of the upper half's cuts and intersections is
 *  joined with the fold of the upper half alone: a layer that adds has no say in what the layers below it lose. */
function folded(layers) {
  if (levels(layers) <= LEVELS) return leftFold(layers);
  const middle = layers.length >> 1;
  const upper = layers.slice(middle);
  const added = folded(upper);
  let kept = folded(layers.slice(0, middle));
  if (kept) {
    for (const layer of upper) if (layer.op === "intersect") kept = joined("and", kept, named(layer));
    const cuts = upper.filter((layer) => layer.op === "cut").map(named);
    if (cuts.length) kept = { type: "minus", args: [kept, cuts.length > 1 ? { type: "or", args: cuts } : cuts[0]] };
  }
  return kept && added ? joined("or", kept, added) : kept ?? added;
}

/** How deep the left fold nests: layers that add, or that intersect, in a row are one level. */
function levels(layers) {
  return layers.filter(({ op }, p) => op === "cut" || op !== layers[p - 1]?.op).length;
}

function leftFold(layers) {
  let result = null;
  for (const layer of layers) {
    const node = named(layer);
    if (layer.op === "add") result = result ? joined("or", result, node) : node;
    else if (layer.op === "cut") result = result ? { type: "minus", args: [result, node] } : null;
    else result = result ? joined("and", result, node) : null;
  }
  return result;
}

/** Whether all layers do the same to those below them. */
export function alike(layers) {
  return layers.every(({ op }) => op === layers[0].op);
}

/** One node for layers that become a group: what they do to the layers below, where all of them do the same; else
 *  their fold, begun with the first. */
export function groupNode(layers) {
  const type = layers[0].op === "intersect" ? "and" : "or";
  if (alike(layers)) return layers.slice(1).reduce((result, layer) => joined(type, result, named(layer)), named(layers[0]));
  return foldNode([{ ...layers[0], op: "add" }, ...layers.slice(1)]);
}

/** A name travels when it says something: one that the node's type does not give, or one that holds a group together. */
function named({ name, node }) {
  return name && (name !== defaultName(node) || node.type in COMPOSITES) ? { ...node, name } : node;
}

function joined(type, left, right) {
  const head = left.type === type && !left.name ? left.args : [left];
  return { type, args: [...head, right] };
}

/** A node back to layers: the unnamed or / and / minus at its top come apart; anything named stays one layer. */
export function unfold(node) {
  const { type, name } = node;
  if (name || !(type in COMPOSITES)) return [makeLayer(withoutName(node), { name })];
  const [first, ...rest] = node.args;
  const op = COMPOSITES[type];
  return [...unfold(first), ...rest.map((arg) => makeLayer(withoutName(arg), { op, name: arg.name }))];
}

export function withoutName(node) {
  const { name, ...rest } = node;
  return rest;
}

export function specOf(layers) {
  return { cmask: 1, mask: foldNode(layers) };
}

export function layersOfSpec(spec) {
  if (!spec || spec.cmask !== 1) throw new SpecError(`unknown spec version ${JSON.stringify(spec?.cmask)}; this Studio reads version 1`);
  checkNode(spec.mask);
  return unfold(spec.mask);
}

const compiled = new WeakMap(); // layer → {key, region}: layers are never changed in place, so a region stays good

function regionOf(layer, plane) {
  const key = `${plane.rows}×${plane.keys}`;
  const known = compiled.get(layer.node);
  if (known?.key === key) return known.region;
  const region = compileRegion(layer.node, plane);
  compiled.set(layer.node, { key, region });
  return region;
}

/** The rows of a list of layers on a plane of queries q_start … q_start + q_len and kv_len keys. */
export class Fold {
  constructor(layers, { q_len, kv_len, q_start = 0 }) {
    this.keys = kv_len;
    this.rows = q_start + q_len;
    this.layers = layers.filter((layer) => layer.visible);
    this.regions = this.layers.map((layer) => regionOf(layer, { rows: this.rows, keys: kv_len }));
    this.buffers = [new Row(), new Row(), new Row()];
    this.every = this.regions.map((_, p) => p);
    this.narrow(0, this.rows);
  }

  /** Says that queries in [from, stop) come next: layers without a say there are not asked. */
  narrow(from, stop) {
    this.from = from;
    this.stop = stop;
    this.active = this.every.filter((p) => this.layers[p].op === "intersect" || (this.regions[p].from < stop && this.regions[p].stop > from));
  }

  /** The layers to ask about query i. */
  asked(i) {
    return i >= this.from && i < this.stop ? this.active : this.every;
  }

  /** The keys that query i sees. The Row is reused by the next call. */
  row(i) {
    let [result, held, spare] = this.buffers;
    result.n = 0;
    for (const p of this.asked(i)) {
      const { op } = this.layers[p];
      const region = this.regions[p];
      const outside = i < region.from || i >= region.stop;
      if (op !== "add" && result.n === 0) continue;
      if (outside) {
        if (op === "intersect") result.n = 0;
        continue;
      }
      region.row(i, held);
      if (op === "add") {
        if (result.n === 0) {
          [result, held] = [held, result];
          continue;
        }
        union(result, held, spare);
      } else if (op === "cut") difference(result, held, spare);
      else intersection(result, held, spare);
      [result, spare] = [spare, result];
    }
    this.buffers = [result, held, spare];
    return result;
  }

  /** The first query after i whose row may differ from that of i. */
  until(i) {
    let least = NEVER;
    for (const p of this.asked(i)) least = Math.min(least, untilWithin(this.regions[p], i));
    return least;
  }

  /** The topmost layer that says something about the pair: it adds it, cuts it, or intersects it away. */
  decider(i, j) {
    for (let p = this.layers.length - 1; p >= 0; p--) {
      const region = this.regions[p];
      const inside = i >= region.from && i < region.stop && region.row(i, this.buffers[1]).has(j);
      if (inside !== (this.layers[p].op === "intersect")) return this.layers[p];
    }
    return null;
  }

  /** What each layer paints in row i, bottom to top: calls paint(layerIndex | -1 to erase, start, stop). */
  paint(i, paint) {
    const held = this.buffers[1];
    for (let p = 0; p < this.regions.length; p++) {
      const region = this.regions[p];
      const outside = i < region.from || i >= region.stop;
      if (outside) held.n = 0;
      else region.row(i, held);
      let row = held;
      if (this.layers[p].op === "intersect") row = complement(held, this.keys, this.buffers[2]);
      const colour = this.layers[p].op === "add" ? p : -1;
      for (let q = 0; q < row.n; q += 2) paint(colour, row.data[q], row.data[q + 1]);
    }
  }
}

/** The queries whose rows may differ between two lists of layers: [from, stop), or null when none. */
export function dirtyRows(before, after, plane) {
  const old = before.filter((layer) => layer.visible);
  const now = after.filter((layer) => layer.visible);
  const same = (a, b) => a.node === b.node && a.op === b.op;
  let head = 0;
  while (head < old.length && head < now.length && same(old[head], now[head])) head += 1;
  let tail = 0;
  while (tail < Math.min(old.length, now.length) - head && same(old[old.length - 1 - tail], now[now.length - 1 - tail])) tail += 1;
  const changed = [...old.slice(head, old.length - tail), ...now.slice(head, now.length - tail)];
  if (changed.length === 0) return null;
  let [from, stop] = [plane.q_start + plane.q_len, 0];
  for (const layer of changed) {
    if (layer.op === "intersect") return [plane.q_start, plane.q_start + plane.q_len];
    const region = regionOf(layer, { rows: plane.q_start + plane.q_len, keys: plane.kv_len });
    from = Math.min(from, region.from);
    stop = Math.max(stop, region.stop);
  }
  from = Math.max(from, plane.q_start);
  stop = Math.min(stop, plane.q_start + plane.q_len);
  return from < stop ? [from, stop] : null;
}
