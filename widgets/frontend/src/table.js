// The accessible twin of the canvas: a real table of the regions in which every edit can be made.

import { clear, h, iconButton, keepFocus } from "./dom.js";
import { describe, fieldsOf } from "./fields.js";
import { OPS } from "./layers.js";
import { fieldInput } from "./properties.js";

export function tablePanel(store) {
  const body = h("tbody");
  const render = () => {
    if (store.look.panel !== "table") return;
    keepFocus(body, () => clear(body, store.design.layers.flatMap((layer, n) => rows(store, layer, n))));
  };
  store.on("design", ({ draft }) => draft || render());
  store.on("look", render);
  return h("div", { class: "cms-table-panel" }, h("table", { class: "cms-table" },
    h("caption", { class: "cms-hint" }, "Regions in order, the bottom one first. Every edit can be made here."),
    h("thead", {}, h("tr", {}, ["", "Name", "Does", "Shown", ""].map((text) => h("th", { scope: "col" }, text)))), body));
}

/** A row with what every region has, and below it one with the region's numbers. */
function rows(store, layer, n) {
  const edit = (change, label) => store.edit(layer.id, change, label);
  const op = h("select", { class: "cms-input", "aria-label": `Operation of ${layer.name}`, onchange: () => edit({ op: op.value }, `make ${layer.name} ${op.value}`) },
    OPS.map((name) => h("option", { value: name, selected: name === layer.op }, name)));
  const name = h("input", { class: "cms-input", value: layer.name, "aria-label": `Name of region ${n + 1}`, onchange: () => edit({ name: name.value }, `rename ${layer.name}`) });
  const visible = h("input", { type: "checkbox", checked: layer.visible, "aria-label": `${layer.name} is shown`, onchange: () => edit({ visible: visible.checked }, `${visible.checked ? "show" : "hide"} ${layer.name}`) });
  const fields = fieldsOf(layer.node).map((field) => fieldInput(field, (node) => edit({ node, template: undefined }, `change ${layer.name}`), { id: `${n}.${field.label}` }));
  return [
    h("tr", { class: "cms-table-head" }, h("th", { scope: "row", rowspan: "2" }, String(n + 1)), h("td", {}, name), h("td", {}, op), h("td", {}, visible),
      h("td", {}, iconButton("trash", `Delete ${layer.name}`, () => store.remove([layer.id])))),
    h("tr", {}, h("td", { colspan: "4" }, fields.length ? h("div", { class: "cms-fields" }, fields) : h("span", { class: "cms-hint" }, describe(layer.node)))),
  ];
}
