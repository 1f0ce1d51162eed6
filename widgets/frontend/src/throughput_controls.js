// Device, contenders, shape: what is measured. Every change goes to Python, whose settings are the ones that hold.

import { clear, h, keepFocus, segmented, whole } from "./dom.js";
import { installCommand, reasonAgainst } from "./throughput_math.js";
import { parseCount } from "./view.js";

const NUMBERS = [
  ["batch", "batch", "Sequences computed together"],
  ["heads", "heads", "Query heads"],
  ["kv_heads", "kv heads", "Heads of keys and values; each serves heads ÷ kv heads query heads"],
  ["head_dim", "head dim", "Numbers in a query, key or value"],
  ["tokens", "tokens", null], // its title names the plane
  ["seconds", "seconds", "What the whole run may take: checks, compilation and every loop of samples"],
];

export function controls(model, change) {
  const body = h("aside", { class: "cms-t-controls" });
  const state = { note: "", late: false };
  const draw = () => keepFocus(body, () => {
    const [machine, choices, plane] = ["machine", "choices", "plane"].map((name) => model.get(name));
    clear(body, contenders(machine, choices, change), shape(choices, plane, change, state), kinds(choices, change));
  });
  // A field that is being typed into is not taken away: what came meanwhile is drawn when it is left.
  const render = () => {
    const held = body.getRootNode().activeElement;
    state.late = Boolean(body.contains(held) && held.dataset.shown !== undefined && held.value !== held.dataset.shown);
    if (!state.late) draw();
  };
  body.addEventListener("focusout", () => state.late && setTimeout(render));
  return { element: body, render };
}

function contenders(machine, choices, change) {
  if (!machine.devices) return h("p", { class: "cms-hint" }, "Looking at this machine …");
  const list = machine.contenders.map((contender) => ({ ...contender, against: reasonAgainst(contender, choices.device, choices.direction) }));
  const item = (contender) => h("li", {}, box(contender, choices, change), contender.against ? reason(contender.against) : null);
  const here = list.filter((contender) => !contender.against);
  const not = list.filter((contender) => contender.against);
  const measured = here.filter((contender) => choices.contenders.includes(contender.name));
  const baseline = h("select", { class: "cms-input", "aria-label": "Baseline", onchange: (event) => change({ baseline: event.target.value }) },
    [...new Set([...measured.map((contender) => contender.name), choices.baseline])].map((name) => h("option", { value: name, selected: name === choices.baseline }, name)));
  return h("section", { class: "cms-section" },
    h("div", { class: "cms-section-head" }, h("h3", {}, "Contenders")),
    h("ul", { class: "cms-t-contenders" }, here.map(item)),
    not.length ? h("details", { class: "cms-t-not", open: OPEN.not, ontoggle: (event) => { OPEN.not = event.target.open; } }, h("summary", {}, `${not.length} cannot run here`), h("ul", { class: "cms-t-contenders" }, not.map(item))) : null,
    h("label", { class: "cms-field" }, h("span", {}, "baseline"), baseline));
}

const OPEN = { not: false };

function box(contender, choices, change) {
  const on = choices.contenders.includes(contender.name);
  const input = h("input", {
    type: "checkbox", checked: on, disabled: Boolean(contender.against) && !on, "data-field": contender.name,
    onchange: () => change({ contenders: on ? choices.contenders.filter((name) => name !== contender.name) : [...choices.contenders, contender.name] }),
  });
  return h("label", { title: contender.about }, input, h("span", {}, contender.name));
}

function reason(text) {
  const [words, command] = installCommand(text);
  return h("p", { class: "cms-hint" }, words, command ? h("code", {}, command) : null);
}

function shape(choices, plane, change, state) {
  const note = h("span", { class: "cms-field-note", role: "alert" }, state.note);
  const fields = NUMBERS.map(([key, label, about]) => {
    const all = key === "tokens";
    const shown = all && (choices.tokens === null || choices.tokens >= plane.q_len) ? "all" : `${choices[key]}`;
    const input = h("input", { class: "cms-input", inputmode: "numeric", "data-field": key, "data-shown": shown, value: shown,
      onkeydown: (event) => event.key === "Enter" && commit(), onchange: () => commit(),
      title: all ? `The Studio has ${whole(plane.q_len)} queries; "all", or only the first so many` : about });
    const commit = () => {
      if (input.value === input.dataset.shown) return;
      input.dataset.shown = input.value; // typed to its end
      const value = parseCount(input.value);
      const bad = value === undefined || (value === null ? !all : value < 1);
      state.note = bad ? `${label}: "${input.value}" is no number above 0` : "";
      note.textContent = state.note;
      if (!bad) change(key === "heads" && choices.kv_heads === choices.heads ? { heads: value, kv_heads: value } : { [key]: value });
    };
    return h("label", { class: "cms-field" }, h("span", {}, label), input);
  });
  const measured = plane.tokens && plane.tokens < plane.q_len ? `Measures the first ${whole(plane.tokens)} of ${whole(plane.q_len)} tokens.` : "";
  return h("section", { class: "cms-section" }, h("div", { class: "cms-section-head" }, h("h3", {}, "Shape")), h("div", { class: "cms-fields" }, fields), note,
    measured ? h("p", { class: "cms-hint" }, measured) : null);
}

function kinds(choices, change) {
  return h("section", { class: "cms-section cms-t-kinds" },
    segmented("Data type", [["bfloat16", "bf16", "bfloat16"], ["float16", "fp16", "float16"], ["float32", "fp32", "float32"]], choices.dtype, (dtype) => change({ dtype })),
    segmented("Direction", [["forward", "Forward", null], ["backward", "Backward", null], ["both", "Both", null]], choices.direction, (direction) => change({ direction })));
}
