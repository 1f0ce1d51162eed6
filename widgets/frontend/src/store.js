// The state of one Studio in the browser: the design with its history, the selection, and how it is looked at.
// Layers and designs are never changed in place, so history is a list of references.

import { alike, COMPOSITES, freshId, groupNode, makeLayer, withoutName } from "./layers.js";
import { depthOf } from "./regions.js";

const GROUP_DEPTH = 40; // with what the fold adds, a design stays within the depth of 100 that a spec may have
const SAME_APART = { or: ["add", "cut"], and: ["intersect"], minus: [] }; // a group with such an op means the same as its parts
const CHANGED = ": the mask changes";

export class Store extends EventTarget {
  constructor(design) {
    super();
    this.session = Math.random().toString(36).slice(2, 10);
    this.revision = 0;
    this.design = withColours(design);
    this.past = [];
    this.future = [];
    this.selection = [];
    this.look = {
      mode: "tiles", tool: "select", op: "add", snapping: true, pinned: null, panel: "cost", dark: false,
    };
    this.clipboard = [];
    this.reordered = null; // the tiles in the compiler's token order, for the design of that revision
  }

  /** Every state of the design has a revision, so that an answer from Python can be matched with its question. */
  stamp(design) {
    this.revision += 1;
    return { ...withColours(design), rev: `${this.session}:${this.revision}` };
  }

  emit(type, detail = {}) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  on(type, listener) {
    this.addEventListener(type, (event) => listener(event.detail));
  }

  /** Shows a design without entering it into the history: what a drag does on every move. */
  preview(change) {
    this.base ??= this.design;
    this.design = this.stamp({ ...this.design, ...change });
    this.emit("design", { draft: true });
  }

  /** Enters the design into the history. `label` says what was done, for undo and for the announcement. */
  commit(label, change = {}, detail = {}) {
    const before = this.base ?? this.design;
    if (before === this.design && Object.keys(change).length === 0) return;
    this.base = null;
    this.design = this.stamp({ ...this.design, ...change });
    this.past.push({ design: before, label, selection: this.selection });
    this.future = [];
    this.emit("design", { draft: false, label, ...detail });
  }

  /** Gives up a drag. */
  cancel() {
    if (!this.base) return;
    this.design = this.stamp(this.base);
    this.base = null;
    this.emit("design", { draft: false, label: "" });
  }

  /** Takes over a design from elsewhere (Python, or another view of the same Studio); undo brings the old one back. */
  adopt(design) {
    this.base = null;
    this.past.push({ design: this.design, label: "change from outside", selection: this.selection });
    this.design = withColours(design);
    this.selection = this.selection.filter((id) => this.layer(id));
    this.emit("design", { draft: false, label: "", outside: true });
    this.emit("selection");
  }

  undo() {
    this.travel(this.past, this.future, "Undid");
  }

  redo() {
    this.travel(this.future, this.past, "Redid");
  }

  travel(from, to, word) {
    const step = from.pop();
    if (!step) return;
    to.push({ design: this.design, label: step.label, selection: this.selection });
    this.design = this.stamp(step.design);
    this.select(this.selection.filter((id) => this.layer(id)));
    this.emit("design", { draft: false, label: `${word}: ${step.label}` });
  }

  set(change) {
    Object.assign(this.look, change);
    this.emit("look", change);
  }

  select(ids) {
    this.selection = ids;
    this.emit("selection");
  }

  layer(id) {
    return this.design.layers.find((layer) => layer.id === id);
  }

  /** The layer that is edited: the one selected last. */
  get active() {
    return this.layer(this.selection[this.selection.length - 1]) ?? null;
  }

  withLayer(id, change) {
    return this.design.layers.map((layer) => (layer.id === id ? { ...layer, ...change } : layer));
  }

  add(node, options = {}) {
    const layer = makeLayer(node, { op: this.look.op, ...options });
    const at = this.active ? this.design.layers.indexOf(this.active) + 1 : this.design.layers.length;
    const layers = this.design.layers.slice();
    layers.splice(at, 0, layer);
    this.selection = [layer.id];
    this.commit(`add ${layer.name}`, { layers });
    this.emit("selection");
    return layer;
  }

  edit(id, change, label) {
    this.commit(label, { layers: this.withLayer(id, change) });
  }

  remove(ids = this.selection) {
    const gone = this.design.layers.filter((layer) => ids.includes(layer.id) && !layer.locked);
    if (gone.length === 0) return;
    const at = this.design.layers.indexOf(gone[0]);
    const layers = this.design.layers.filter((layer) => !gone.includes(layer));
    this.selection = layers.length ? [layers[Math.max(0, at - 1)].id] : [];
    this.commit(`delete ${gone.map((layer) => layer.name).join(", ")}`, { layers });
    this.emit("selection");
  }

  copy() {
    this.clipboard = this.design.layers.filter((layer) => this.selection.includes(layer.id));
    return this.clipboard;
  }

  paste(layers = this.clipboard, word = "paste") {
    if (layers.length === 0) return;
    const fresh = layers.map((layer) => ({ ...layer, id: freshId(), name: layer.name, locked: false, colour: undefined }));
    const last = this.design.layers.findLastIndex((layer) => this.selection.includes(layer.id));
    const list = this.design.layers.slice();
    list.splice(last < 0 ? list.length : last + 1, 0, ...fresh);
    this.selection = fresh.map((layer) => layer.id);
    this.commit(`${word} ${fresh.map((layer) => layer.name).join(", ")}`, { layers: list });
    this.emit("selection");
  }

  duplicate() {
    this.paste(this.design.layers.filter((layer) => this.selection.includes(layer.id)), "duplicate");
  }

  /** Moves a layer to place `to` of the list (bottom first). */
  reorder(id, to) {
    const layers = this.design.layers.slice();
    const from = layers.findIndex((layer) => layer.id === id);
    const place = Math.min(Math.max(to, 0), layers.length - 1);
    if (from < 0 || from === place) return;
    const [layer] = layers.splice(from, 1);
    layers.splice(place, 0, layer);
    this.commit(`move ${layer.name}`, { layers });
  }

  /** The selected layers that are shown become one layer, and a group comes apart again; the label says where that changes the mask. */
  group() {
    const members = this.design.layers.filter((layer) => layer.visible && this.selection.includes(layer.id));
    if (members.length < 2) return;
    const { op } = members[0];
    const node = groupNode(members);
    if (depthOf(node) > GROUP_DEPTH) {
      this.emit("refused", { label: `Groups nest at most ${GROUP_DEPTH} deep: nothing was grouped` });
      return;
    }
    const { layers: all } = this.design;
    const last = all.indexOf(members[members.length - 1]);
    const exact = alike(members) && last - all.indexOf(members[0]) === members.length - 1;
    const group = makeLayer(node, { op, name: "Group" });
    const layers = all.filter((layer) => !members.includes(layer));
    layers.splice(last - members.length + 1, 0, group);
    this.selection = [group.id];
    this.commit(`group ${members.length} layers${exact ? "" : CHANGED}`, { layers });
    this.emit("selection");
  }

  ungroup() {
    const { active } = this;
    const type = active?.node.type;
    if (!(type in COMPOSITES)) return;
    const same = SAME_APART[type].includes(active.op);
    const lowest = active.op === "add" && this.design.layers.find((layer) => layer.visible) === active;
    const op = same ? active.op : COMPOSITES[type];
    const [first, ...rest] = active.node.args;
    const parts = [makeLayer(withoutName(first), { op: active.op, name: first.name }), ...rest.map((arg) => makeLayer(withoutName(arg), { op, name: arg.name }))];
    const layers = this.design.layers.flatMap((layer) => (layer === active ? parts : [layer]));
    this.selection = parts.map((layer) => layer.id);
    this.commit(`ungroup ${active.name}${same || lowest ? "" : CHANGED}`, { layers });
    this.emit("selection");
  }
}

/** Every layer has a colour that stays with it: the least used one when it came. */
function withColours(design) {
  if (design.layers.every((layer) => Number.isInteger(layer.colour))) return design;
  const used = new Array(8).fill(0);
  for (const layer of design.layers) if (Number.isInteger(layer.colour)) used[layer.colour % 8] += 1;
  const layers = design.layers.map((layer) => {
    if (Number.isInteger(layer.colour)) return layer;
    const colour = used.indexOf(Math.min(...used));
    used[colour] += 1;
    return { ...layer, colour };
  });
  return { ...design, layers };
}
