// The list of layers, topmost first: select, show, lock, rename, reorder by dragging, and what to do with the selection.

import { clear, h, icon, iconButton, offer } from "./dom.js";
import { describe } from "./fields.js";
import { layerColour, PALETTES } from "./palette.js";

const OP = {
  add: ["+", "adds to what lies below"], cut: ["−", "cuts from what lies below"], intersect: ["∩", "keeps what lies below only inside"],
};
const NEXT = { add: "cut", cut: "intersect", intersect: "add" };

export function layersPanel(store, openMenu) {
  const list = h("ol", { class: "cms-layers", role: "listbox", "aria-label": "Layers, topmost first", "aria-multiselectable": "true" });
  const add = h("button", { type: "button", class: "cms-button cms-primary", "aria-haspopup": "menu", onclick: () => openMenu(add) }, icon("plus"), "Add region");
  const actions = h("div", { class: "cms-row cms-layer-actions" },
    iconButton("copy", "Duplicate", () => store.duplicate(), { keys: "Ctrl+D" }),
    iconButton("up", "Raise", () => shift(store, 1), { keys: "]" }),
    iconButton("down", "Lower", () => shift(store, -1), { keys: "[" }),
    iconButton("group", "Group, or take a group apart", () => (store.selection.length > 1 ? store.group() : store.ungroup()), { keys: "Ctrl+G" }),
    iconButton("trash", "Delete", () => store.remove(), { keys: "Delete" }));
  const render = () => {
    const { layers } = store.design;
    actions.querySelectorAll("button").forEach((button) => { offer(button, store.selection.length > 0); });
    if (layers.length === 0) {
      clear(list, h("li", { class: "cms-hint" }, "No layers: nothing is visible. Add a region, or draw one on the canvas."));
      return;
    }
    clear(list, layers.toReversed().map((layer) => layerRow(store, layer)));
  };
  store.on("design", ({ draft }) => (draft && list.childElementCount === store.design.layers.length ? refresh(store, list) : render()));
  store.on("selection", render);
  store.on("look", (change) => "dark" in change && render());
  render();
  return h("section", { class: "cms-section cms-layers-section", "aria-label": "Layers" },
    h("header", { class: "cms-section-head" }, h("h3", {}, "Layers"), add), list, actions);
}

function shift(store, by) {
  const { active } = store;
  if (active) store.reorder(active.id, store.design.layers.indexOf(active) + by);
}

/** While dragging only the words of what is dragged change. */
function refresh(store, list) {
  for (const id of store.selection) {
    const found = list.querySelector(`[data-id="${id}"] .cms-layer-about`);
    const layer = store.layer(id);
    if (found && layer) found.textContent = describe(layer.node);
  }
}

function layerRow(store, layer) {
  const selected = store.selection.includes(layer.id);
  const palette = store.look.dark ? PALETTES.dark : PALETTES.light;
  const [sign, meaning] = OP[layer.op];
  const op = h("button", {
    type: "button", class: `cms-op cms-op-${layer.op}`, title: `${layer.name} ${meaning}. Click to change.`, "aria-label": `Operation: ${layer.op}`,
    onclick: (event) => {
      event.stopPropagation();
      store.edit(layer.id, { op: NEXT[layer.op] }, `make ${layer.name} ${NEXT[layer.op]}`);
    },
  }, sign);
  const name = h("span", { class: "cms-layer-name", title: "Double-click to rename" }, layer.name);
  const about = h("span", { class: "cms-layer-about" }, describe(layer.node));
  const toggle = (key, on, off, label) => iconButton(layer[key] ? on : off, `${label} ${layer.name}`, (event) => {
    event.stopPropagation();
    store.edit(layer.id, { [key]: !layer[key] }, `${label.toLowerCase()} ${layer.name}`);
  }, { "aria-pressed": String(layer[key]) });
  const row = h("li", {
    class: `cms-layer${layer.visible ? "" : " cms-hidden"}`, role: "option", "aria-selected": String(selected), tabindex: selected ? "0" : "-1", "data-id": layer.id,
    "aria-label": `${layer.name}, ${layer.op}, ${describe(layer.node)}${layer.visible ? "" : ", hidden"}${layer.locked ? ", locked" : ""}`,
    onpointerdown: (event) => startReorder(store, layer, row, event),
    ondblclick: (event) => event.target.closest("button") ?? rename(store, layer, name),
  },
  h("span", { class: "cms-swatch", style: `background:${layerColour(palette, layer.colour)}` }), op,
  h("span", { class: "cms-layer-text" }, name, about),
  toggle("locked", "lock", "unlock", layer.locked ? "Unlock" : "Lock"),
  toggle("visible", "eye", "eye-off", layer.visible ? "Hide" : "Show"));
  return row;
}

export function rename(store, layer, name) {
  const input = h("input", { class: "cms-input", value: layer.name, "aria-label": `New name of ${layer.name}` });
  const done = (keep) => {
    const text = input.value.trim();
    input.replaceWith(name);
    if (keep && text && text !== layer.name) store.edit(layer.id, { name: text }, `rename ${layer.name} to ${text}`);
  };
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") input.blur();
    if (event.key === "Escape") {
      input.value = "";
      input.blur();
    }
  });
  input.addEventListener("blur", () => done(true), { once: true });
  input.addEventListener("pointerdown", (event) => event.stopPropagation());
  name.replaceWith(input);
  input.focus();
  input.select();
}

/** Press selects; press and move drags the row to another place. */
function startReorder(store, layer, row, event) {
  if (event.button !== 0 || event.target.closest("button, input")) return;
  const many = event.shiftKey || event.ctrlKey || event.metaKey;
  const { selection } = store;
  const y = event.clientY;
  const list = row.parentElement;
  const marker = h("li", { class: "cms-drop", "aria-hidden": "true" });
  let place = null;
  const move = (moved) => {
    if (Math.abs(moved.clientY - y) < 4 && place === null) return;
    const rows = [...list.querySelectorAll(".cms-layer")];
    const over = rows.findIndex((other) => moved.clientY < other.getBoundingClientRect().top + other.offsetHeight / 2);
    place = over < 0 ? rows.length : over;
    if (over < 0) list.append(marker);
    else list.insertBefore(marker, rows[over]);
  };
  const end = () => {
    window.removeEventListener("pointermove", move);
    window.removeEventListener("pointerup", end);
    marker.remove();
    const { layers } = store.design;
    if (place === null) {
      if (many) store.select(selection.includes(layer.id) ? selection.filter((id) => id !== layer.id) : [...selection, layer.id]);
      else store.select([layer.id]);
      list.querySelector(`[data-id="${layer.id}"]`)?.focus({ preventScroll: true });
      return;
    }
    const from = layers.length - 1 - layers.indexOf(layer); // place counts from the top
    store.reorder(layer.id, layers.length - 1 - (place > from ? place - 1 : place));
  };
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", end);
}
