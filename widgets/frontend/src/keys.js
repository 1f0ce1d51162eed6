// The keyboard: one table of keys for the handler and for the help that ? shows.

import { clear, h, iconButton } from "./dom.js";
import { moveNode } from "./geometry.js";
import { zoomToTile } from "./pointer.js";

export const TOOLS = [
  ["select", "V", "Select and move"], ["hand", "H", "Pan"], ["rect", "R", "Draw a rectangle"], ["causal", "C", "Draw a causal box"],
  ["band", "B", "Draw a band"], ["window", "W", "Draw a sliding window"], ["prefix", "P", "Draw a prefix"], ["documents", "D", "Draw document boundaries"],
];

const HELP = [
  ["Tools", TOOLS.map(([, key, label]) => [key, label])],
  ["Edit", [["Ctrl Z", "undo"], ["Ctrl Y", "redo"], ["Ctrl D", "duplicate"], ["Ctrl C  Ctrl V", "copy, paste"], ["Ctrl G", "group, ungroup"], ["Delete", "delete"], ["F2", "rename"], ["[  ]", "lower, raise"], ["X", "add, cut, intersect in turn"], ["Shift H", "hide, show"], ["Shift L", "lock, unlock"]]],
  ["Move", [["arrows", "nudge by 1"], ["Shift arrows", "nudge by a tile"], ["Alt while dragging", "no snapping"], ["Esc", "give up a drag, drop the selection"], ["N  Shift N", "select the next layer, the one before"]]],
  ["View", [["Ctrl wheel", "zoom"], ["+  −", "zoom"], ["0", "fit the plane"], ["F", "fit the selection"], ["Z", "look at the pinned tile's tokens"], ["Space drag", "pan"], ["1  2  3  4", "tiles, mask, layers, order"], ["S", "snapping on, off"], ["?", "these keys"]]],
];

export function helpSheet() {
  const sheet = h("div", { class: "cms-help", role: "dialog", "aria-label": "Keys", hidden: true, tabindex: "-1" });
  clear(sheet, h("header", { class: "cms-section-head" }, h("h3", {}, "Keys"), iconButton("close", "Close", () => { sheet.hidden = true; })),
    h("div", { class: "cms-help-columns" }, HELP.map(([title, rows]) => h("section", {}, h("h4", {}, title),
      h("dl", {}, rows.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text))))))));
  return sheet;
}

/** Keys work while the focus is anywhere in the Studio but in a text field. */
export function bindKeys(root, { store, stage, help, renameActive, paste }) {
  const nudge = (event, di, dj) => {
    const { design, active } = store;
    if (!active || active.locked) return;
    const [qBy, kBy] = event.shiftKey ? design.tile : [1, 1];
    const node = moveNode(active.node, di * qBy, dj * kBy, stage.plane);
    if (node) store.edit(active.id, { node }, `nudge ${active.name}`);
  };
  const step = (by) => {
    const { layers } = store.design;
    if (layers.length === 0) return;
    const at = store.active ? layers.indexOf(store.active) : by > 0 ? -1 : 0;
    store.select([layers[(at + by + layers.length) % layers.length].id]);
  };
  const flip = (key) => store.active && store.edit(store.active.id, { [key]: !store.active[key] }, `${key === "visible" ? "show or hide" : "lock or unlock"} ${store.active.name}`);
  const OPS = { add: "cut", cut: "intersect", intersect: "add" };

  const plain = {
    ArrowUp: (event) => nudge(event, -1, 0), ArrowDown: (event) => nudge(event, 1, 0), ArrowLeft: (event) => nudge(event, 0, -1), ArrowRight: (event) => nudge(event, 0, 1),
    Delete: () => store.remove(), Backspace: () => store.remove(), Escape: () => (help.hidden ? store.select([]) : (help.hidden = true)),
    0: () => stage.fit(), "+": () => stage.zoom(1.5), "=": () => stage.zoom(1.5), "-": () => stage.zoom(1 / 1.5), "?": () => { help.hidden = !help.hidden; },
    1: () => store.set({ mode: "tiles" }), 2: () => store.set({ mode: "mask" }), 3: () => store.set({ mode: "layers" }), 4: () => store.set({ mode: "order" }),
    "]": () => store.active && store.reorder(store.active.id, store.design.layers.indexOf(store.active) + 1),
    "[": () => store.active && store.reorder(store.active.id, store.design.layers.indexOf(store.active) - 1),
    F2: () => renameActive(), n: () => step(1), N: () => step(-1), s: () => store.set({ snapping: !store.look.snapping }),
    x: () => store.active && store.edit(store.active.id, { op: OPS[store.active.op] }, `make ${store.active.name} ${OPS[store.active.op]}`),
    H: () => flip("visible"), L: () => flip("locked"), f: () => stage.showSelection(), z: () => store.look.pinned && zoomToTile(stage, store.look.pinned),
  };
  for (const [tool, key] of TOOLS) plain[key.toLowerCase()] = () => store.set({ tool });
  const withControl = {
    z: (event) => (event.shiftKey ? store.redo() : store.undo()), y: () => store.redo(), d: () => store.duplicate(), c: () => store.copy(), v: () => paste(),
    a: () => store.select(store.design.layers.map((layer) => layer.id)), g: () => (store.selection.length > 1 ? store.group() : store.ungroup()),
  };

  root.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=range]):not([type=checkbox]), select, textarea");
    if (typing) {
      event.stopPropagation();
      return;
    }
    if (event.target.closest("[role=radiogroup], [role=tablist]") && event.key.startsWith("Arrow")) return;
    if (event.target.closest("input[type=range]") && event.key.startsWith("Arrow")) return;
    const control = event.ctrlKey || event.metaKey;
    if (event.code === "Space" && !event.target.closest("button")) {
      stage.spaceHeld = true;
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    const action = control ? withControl[event.key.toLowerCase()] : event.altKey ? null : plain[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation(); // or JupyterLab would take the key for the notebook
    action(event);
  });
  root.addEventListener("keyup", (event) => {
    if (event.code === "Space") stage.spaceHeld = false;
  });
}
