// The numbers of the selected layer, and those of the plane.

import { clear, h, keepFocus } from "./dom.js";
import { count, FieldError, fieldsOf } from "./fields.js";
import { gridBrush } from "./brush.js";
import { templateSliders } from "./gallery.js";

/** A labelled input that commits on Enter or when left, and says what is wrong with its text. */
export function fieldInput(field, commit, { id } = {}) {
  const note = h("span", { class: "cms-field-note", role: "alert" });
  const input = h("input", {
    class: "cms-input", value: field.text, placeholder: field.hint ?? "", "aria-label": field.label, inputmode: "text", spellcheck: "false", "data-field": id ?? field.label,
    onkeydown(event) {
      event.stopPropagation();
      if (event.key === "Enter") apply();
      if (event.key === "Escape") {
        input.value = field.text;
        input.blur();
      }
      const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (step && /^-?\d+$/.test(input.value)) {
        event.preventDefault();
        input.value = `${Number(input.value) + step * (event.shiftKey ? field.big ?? 128 : 1)}`;
        apply();
      }
    },
    onblur: () => setTimeout(apply), // the focus is in its new place first
  });
  const apply = () => {
    if (input.value === field.text) return;
    try {
      const changed = field.set(input.value);
      note.textContent = "";
      input.removeAttribute("aria-invalid");
      field.text = input.value;
      commit(changed);
    } catch (error) {
      if (!(error instanceof FieldError)) throw error;
      note.textContent = error.message;
      input.setAttribute("aria-invalid", "true");
    }
  };
  return h("label", { class: `cms-field${field.wide ? " cms-wide" : ""}` }, h("span", {}, field.label), input, note);
}

export function propertiesPanel(store, link) {
  const body = h("div", { class: "cms-fields" });
  const title = h("h3", {}, "Region");
  let shownNode = null;
  let shownId = null;
  const render = (detail = {}) => {
    const { active } = store;
    if (active && active.node === shownNode && detail.draft === undefined) return;
    // A field that is being typed into is left alone until it commits.
    if (detail.draft && body.contains(document.activeElement)) return;
    if (active?.template && active.id === shownId && body.contains(document.activeElement)) return;
    shownNode = active?.node ?? null;
    shownId = active?.id ?? null;
    if (!active) {
      title.textContent = "Region";
      clear(body, h("p", { class: "cms-hint" }, "Select a layer to see its numbers."));
      return;
    }
    title.textContent = active.name;
    if (detail.draft && update(body, active)) return;
    const commit = (node) => store.edit(active.id, { node, ...(active.template ? { template: undefined } : {}) }, `change ${active.name}`);
    const fields = active.template ? [] : fieldsOf(active.node);
    keepFocus(body, () => clear(body,
      active.template && templateSliders(store, active, link),
      fields.map((field) => fieldInput(field, commit)),
      !active.template && active.node.type === "grid" && active.node.shape.length === 2 && gridBrush(store, active),
      fields.length === 0 && !active.template && h("p", { class: "cms-hint" }, "This region has no numbers of its own.")));
  };
  store.on("design", render);
  store.on("selection", () => {
    shownNode = undefined;
    render();
  });
  render();
  return h("section", { class: "cms-section", "aria-label": "Properties of the selected region" }, h("header", { class: "cms-section-head" }, title), body);
}

/** New numbers into the inputs that are there; false when they no longer fit. */
function update(body, layer) {
  const inputs = body.querySelectorAll("input[data-field]");
  const fields = fieldsOf(layer.node);
  if (layer.template || inputs.length !== fields.length) return false;
  inputs.forEach((input, n) => { input.value = fields[n].text; });
  return true;
}

const LIMIT = 1 << 24; // as in design.py

/** Lengths of the plane and the tile size. */
export function planePanel(store) {
  const body = h("div", { class: "cms-fields" });
  const whole = (key, label, least) => ({
    label, text: `${store.design[key]}`,
    set: (text) => ({ [key]: count(text, { least, most: LIMIT }) }),
  });
  const render = () => {
    const commit = (change) => {
      // A square plane stays square while both sides are changed as one.
      const { q_len, kv_len, q_start } = store.design;
      const both = "q_len" in change && q_len === kv_len && q_start === 0 ? { kv_len: change.q_len } : {};
      store.commit("resize the plane", { ...change, ...both });
    };
    keepFocus(body, () => clear(body, fieldInput(whole("q_len", "queries", 1), commit), fieldInput(whole("kv_len", "keys", 1), commit),
      fieldInput(whole("q_start", "first query", 0), commit)));
  };
  store.on("design", ({ draft }) => draft || render());
  render();
  return h("section", { class: "cms-section", "aria-label": "Plane" }, h("header", { class: "cms-section-head" }, h("h3", {}, "Plane")), body);
}
