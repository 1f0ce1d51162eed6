// The Add menu (shapes, and the gallery that Python lists) and the sliders of a layer that came from the gallery.

import { clear, h } from "./dom.js";
import { Fold, makeLayer } from "./layers.js";
import { PALETTES } from "./palette.js";
import { SHAPES } from "./shapes.js";

const THUMB = 26;

/** A small drawing of a mask on a plane of THUMB × THUMB tokens. */
function thumbnail(node, dark) {
  const canvas = h("canvas", { width: THUMB, height: THUMB, class: "cms-thumb", "aria-hidden": "true" });
  const ctx = canvas.getContext("2d");
  const palette = dark ? PALETTES.dark : PALETTES.light;
  const fold = new Fold([makeLayer(node)], { q_len: THUMB, kv_len: THUMB });
  ctx.fillStyle = palette.full;
  for (let i = 0; i < THUMB; i++) for (const [start, stop] of fold.row(i).pairs()) ctx.fillRect(start, i, stop - start, 1);
  return canvas;
}

const SMALL = { q_start: 0, q_len: THUMB, kv_len: THUMB };
// Some shapes say more in a thumbnail with other numbers than they would have on so small a plane.
const THUMBS = {
  strided: { type: "strided", step: 4, phase: 0 }, global: { type: "global_tokens", ranges: [[5, 7], [15, 17]] }, sink: { type: "sink", n: 5 },
  disk: { type: "grid", shape: [5, 5], kind: "disk", radius: 1.6 }, box: { type: "grid", shape: [5, 5], kind: "box", radii: [1, 1] },
  neighborhood: { type: "grid", shape: [5, 5], kind: "neighborhood", size: [3, 3], dilation: [1, 1], causal: [false, false] },
};

export class AddMenu {
  constructor(store, link, templates) {
    Object.assign(this, { store, link, templates });
    this.input = h("input", {
      class: "cms-input", type: "search", placeholder: "Find a region or a mask from the gallery", "aria-label": "Find", oninput: () => this.fill(),
    });
    this.found = h("div", { class: "cms-menu-scroll" });
    this.element = h("div", { class: "cms-menu", role: "dialog", "aria-label": "Add a region", hidden: true, onkeydown: (event) => this.key(event) }, this.input, this.found);
  }

  open(button) {
    if (!this.element.hidden) {
      this.close();
      return;
    }
    this.button = button;
    this.input.value = "";
    this.fill();
    this.element.hidden = false;
    const outer = this.element.parentElement.getBoundingClientRect();
    const box = button.getBoundingClientRect();
    this.element.style.top = `${box.bottom - outer.top + 4}px`;
    this.element.style.left = `${Math.max(8, Math.min(box.left - outer.left, outer.width - this.element.offsetWidth - 8))}px`;
    this.input.focus({ preventScroll: true });
    this.outside = (event) => this.element.contains(event.target) || button.contains(event.target) || this.close();
    document.addEventListener("pointerdown", this.outside, true);
  }

  close() {
    this.element.hidden = true;
    document.removeEventListener("pointerdown", this.outside, true);
    this.button?.focus({ preventScroll: true });
  }

  key(event) {
    event.stopPropagation();
    const items = [...this.element.querySelectorAll(".cms-menu-item")];
    const at = items.indexOf(document.activeElement);
    if (event.key === "Escape") this.close();
    else if (event.key === "ArrowDown") items[Math.min(items.length - 1, at + 1)]?.focus();
    else if (event.key === "ArrowUp") (at <= 0 ? this.input : items[at - 1]).focus();
    else if (event.key === "Enter" && at < 0) items[0]?.click();
    else return;
    event.preventDefault();
  }

  fill() {
    const { store } = this;
    const query = this.input.value.trim();
    const has = (...texts) => texts.join(" ").toLowerCase().includes(query.toLowerCase());
    const dark = store.look.dark;
    const shapes = SHAPES.filter((shape) => has(shape.label, shape.hint)).map((shape) => h("button", {
      type: "button", class: "cms-menu-item", onclick: () => {
        this.close();
        store.add(shape.node(store.design));
      },
    }, thumbnail(THUMBS[shape.name] ?? shape.node(SMALL), dark), h("span", {}, h("b", {}, shape.label), h("small", {}, shape.hint))));
    const gallery = this.templates.filter((entry) => has(entry.title, entry.name, entry.formula, entry.source)).map((entry) => h("button", {
      type: "button", class: "cms-menu-item cms-template", title: entry.source, onclick: () => {
        this.close();
        this.addTemplate(entry);
      },
    }, h("span", {}, h("b", {}, entry.title), h("small", {}, entry.formula))));
    clear(this.found,
      shapes.length > 0 && h("h4", {}, "Regions"), h("div", { class: "cms-menu-grid" }, shapes),
      gallery.length > 0 && h("h4", {}, "Gallery"), h("div", { class: "cms-menu-list" }, gallery),
      shapes.length + gallery.length === 0 && h("p", { class: "cms-hint" }, `Nothing is called “${query}”.`));
  }

  async addTemplate(entry) {
    const params = Object.fromEntries(entry.params.map((param) => [param.name, param.default]));
    const answer = await this.link.ask("template", { name: entry.name, params });
    if (answer.error) this.store.emit("problem", answer.error);
    else this.store.add(answer.node, { name: entry.title, template: { name: entry.name, params } });
  }
}

/** One slider (or choice) a parameter; the layer follows while they move. */
export function templateSliders(store, layer, link) {
  const entry = link.templates.find(({ name }) => name === layer.template.name);
  if (!entry) return h("p", { class: "cms-hint" }, `The gallery of this kernel has no "${layer.template.name}".`);
  let params = layer.template.params;
  const change = async (name, value, final) => {
    params = { ...params, [name]: value };
    const mine = params;
    const answer = await link.ask("template", { name: entry.name, params });
    if (mine !== params) return;
    if (answer.error) {
      store.emit("problem", answer.error);
      return;
    }
    store.emit("problem", "");
    store.preview({ layers: store.withLayer(layer.id, { node: answer.node, template: { name: entry.name, params } }) });
    if (final) store.commit(`set ${name} of ${layer.name} to ${value}`);
  };
  const rows = entry.params.map((param) => templateRow(param, params[param.name], change));
  return h("div", { class: "cms-wide cms-sliders" }, h("p", { class: "cms-formula" }, entry.formula), rows,
    entry.source && h("p", { class: "cms-hint" }, entry.source));
}

function templateRow(param, value, change) {
  if (param.kind === "choice" || param.kind === "bool") {
    const options = param.kind === "bool" ? [true, false] : param.choices;
    const select = h("select", { class: "cms-input", "aria-label": param.name, onchange: () => change(param.name, options[select.selectedIndex], true) },
      options.map((option) => h("option", { selected: option === value }, String(option))));
    return h("label", { class: "cms-slider" }, h("span", {}, param.name), select);
  }
  if (param.kind === "text") {
    const input = h("input", { class: "cms-input", value: JSON.stringify(value), "aria-label": param.name, onchange: () => change(param.name, input.value, true) });
    return h("label", { class: "cms-slider" }, h("span", {}, param.name), input);
  }
  const step = param.kind === "float" ? "any" : "1";
  const number = h("input", { class: "cms-input", type: "number", step, min: param.min, max: param.max, value: String(value), "aria-label": `${param.name}, number` });
  const slider = h("input", { type: "range", step: param.kind === "float" ? String((param.max - param.min) / 200) : "1", min: String(param.min), max: String(param.max), value: String(value), "aria-label": param.name });
  const read = (input) => (param.kind === "float" ? Number(input.value) : Math.round(Number(input.value)));
  slider.addEventListener("input", () => {
    number.value = slider.value;
    change(param.name, read(slider), false);
  });
  slider.addEventListener("change", () => change(param.name, read(slider), true));
  number.addEventListener("change", () => {
    slider.value = number.value;
    change(param.name, read(number), true);
  });
  return h("label", { class: "cms-slider" }, h("span", { title: param.about ?? "" }, param.name), slider, number);
}
