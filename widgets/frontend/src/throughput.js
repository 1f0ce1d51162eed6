// The entry of the throughput panel: anywidget calls render({model, el}) for every view of it.

import { copyText } from "./code.js";
import { clear, h, icon, offer } from "./dom.js";
import { isDark } from "./palette.js";
import { controls } from "./throughput_controls.js";
import { kernelGone } from "./throughput_math.js";
import { resultsPanel } from "./throughput_results.js";

function render({ model, el }) {
  const ask = asker(model);
  // The settings as this view wants them: Python's, unless Python has not answered the last change yet.
  const change = (changes) => ask("settings", { ...model.get("choices"), ...ask.wanted, ...changes });
  const left = controls(model, change);
  const results = resultsPanel((number) => change({ case: number }));
  const head = toolbar(model, ask, change);
  const note = banner(model);
  const root = h("div", { class: "cms-throughput", "data-lm-suppress-shortcuts": "true", role: "region", "aria-label": "Throughput" },
    head.element, note.element, h("div", { class: "cms-t-body" }, left.element, results.element));
  const theme = () => {
    const dark = isDark(el);
    if (root.dataset.theme === (dark ? "dark" : "light")) return;
    root.dataset.theme = dark ? "dark" : "light";
    results.theme(dark);
  };
  const watcher = new MutationObserver(theme);
  watcher.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class", "style"] });
  const listeners = {
    "change:machine": () => { left.render(); head.show(); note.show(); },
    "change:choices": () => { left.render(); head.show(); },
    "change:plane": () => { left.render(); note.show(); head.show(); },
    "change:status": () => { head.show(); note.show(); },
    "change:results": () => { results.show(model.get("results")); head.show(); },
    "change:problem": () => note.show(),
    "change:answers": () => { ask.deliver(); left.render(); },
  };
  for (const [event, listener] of Object.entries(listeners)) model.on(event, listener);
  const timer = setInterval(() => {
    const gone = kernelGone(model.widget_manager?.kernel);
    if (gone && !note.lost) note.lost = true; // a kernel that restarted does not know this panel
    note.show();
    head.element.classList.toggle("cms-t-lost", note.lost);
  }, 1000);
  const seen = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) {
      seen.disconnect();
      if (!model.get("machine").devices) ask("command", "look");
    }
  }, { threshold: 0.25 });
  seen.observe(root);
  el.replaceChildren(root);
  theme();
  left.render();
  head.show();
  note.show();
  results.show(model.get("results"));
  root.panel = { model, ask }; // for the browser tests and the console
  return () => {
    clearInterval(timer);
    seen.disconnect();
    watcher.disconnect();
    for (const [event, listener] of Object.entries(listeners)) model.off(event, listener);
  };
}

/** Questions to Python through one trait, by kind: the latest of each kind wins, none is lost to another kind. */
function asker(model) {
  const session = Math.random().toString(36).slice(2, 10);
  const waiting = new Map();
  let count = 0;
  const ask = (kind, value) => {
    count += 1;
    const n = `${session}:${count}`;
    if (kind === "settings") ask.wanted = value;
    model.set("asks", { ...model.get("asks"), [kind]: { n, value } });
    model.save_changes();
    return new Promise((resolve) => waiting.set(kind, { n, resolve }));
  };
  ask.wanted = {};
  ask.deliver = () => {
    for (const [kind, answer] of Object.entries(model.get("answers"))) {
      if (waiting.get(kind)?.n !== answer.n) continue;
      if (kind === "settings") ask.wanted = {};
      waiting.get(kind).resolve(answer);
      waiting.delete(kind);
    }
  };
  return ask;
}

function toolbar(model, ask, change) {
  const device = h("select", { class: "cms-input", "aria-label": "Device", onchange: () => change({ device: device.value }) });
  const source = h("select", { class: "cms-input", "aria-label": "Results", onchange: () => change({ recorded: source.value, case: 0 }) });
  const start = h("button", { type: "button", class: "cms-button cms-primary", onclick: () => ask("command", busy() ? "stop" : "start") });
  const auto = h("input", { type: "checkbox", onchange: () => change({ auto: auto.checked }) });
  const doing = h("span", { class: "cms-hint cms-t-doing", role: "status" });
  const bar = h("progress", { class: "cms-t-progress", max: 1, "aria-label": "Progress" });
  const copies = ["json", "markdown"].map((kind) => {
    const button = h("button", { type: "button", class: "cms-button", title: "With every field", onclick: async () => {
      const answer = await ask("copy", kind);
      flash(button, !answer.error && (await copyText(answer.text)) ? "Copied" : "Not copied", label);
    } });
    const label = [icon("copy"), kind === "json" ? "JSON" : "Markdown"];
    clear(button, label);
    return button;
  });
  const busy = () => ["running", "waiting"].includes(model.get("status").state);
  return {
    element: h("header", { class: "cms-toolbar" }, h("span", { class: "cms-brand" }, "Throughput"), device, start,
      h("label", { class: "cms-t-auto", title: "Measure again when the mask has settled" }, auto, "Auto"), bar, doing,
      h("span", { class: "cms-spring" }), source, copies),
    show() {
      const [machine, choices, status, plane, recorded, results] = ["machine", "choices", "status", "plane", "recorded", "results"].map((name) => model.get(name));
      const devices = machine.devices?.length ? machine.devices : [{ id: choices.device, name: choices.device, detail: machine.problem ?? "looking …" }];
      clear(device, devices.map((each) => h("option", { value: each.id, selected: each.id === choices.device }, `${each.name} · ${each.detail}`)));
      clear(source, h("option", { value: "", selected: !choices.recorded }, "measured here"),
        recorded.map((each) => h("option", { value: each.name, selected: each.name === choices.recorded }, `recorded: ${each.label}`)));
      source.hidden = recorded.length === 0;
      clear(start, busy() ? "Stop" : "Start");
      offer(start, busy() || !(plane.why_not || machine.problem));
      start.title = plane.why_not || "Check every contender, then time all of them";
      auto.checked = choices.auto;
      bar.hidden = !busy();
      bar.value = status.progress;
      doing.title = doing.textContent = busy() ? status.doing : status.state === "stopped" ? `Stopped${status.doing ? `: ${status.doing}` : ""}` : "";
      copies.forEach((button) => offer(button, Boolean(results.directions)));
    },
  };
}

function flash(button, text, label) {
  clear(button, text);
  setTimeout(() => clear(button, label), 1500);
}

/** One line below the toolbar for what must be seen; the worst first. */
function banner(model) {
  const element = h("div", { role: "alert", hidden: true });
  const self = { element, lost: false };
  let last = "";
  self.show = () => {
    const [machine, choices, status, plane] = ["machine", "choices", "status", "plane"].map((name) => model.get(name));
    const error = status.state === "failed" ? status.error : null;
    const [kind, text] = self.lost ? ["lost", "Disconnected from the kernel: what is shown is kept, nothing is measured. Run the cell again."]
      : model.get("problem") ? ["problem", model.get("problem")]
      : error ? ["problem", `${error.kind}: ${error.message}. ${error.advice}`]
      : machine.problem ? ["problem", machine.problem]
      : plane.why_not ? ["problem", plane.why_not]
      : plane.stale && !choices.recorded ? ["busy", "The mask has changed since this was measured."]
      : machine.no_gpu ? ["busy", `No CUDA GPU: ${machine.no_gpu}. The CPU's contenders are measured, at a size that suits it.${model.get("recorded").length ? " Results from a real GPU can be chosen on the right." : ""}`]
      : ["", ""];
    if (last === kind + text) return;
    last = kind + text;
    element.hidden = kind === "";
    element.className = `cms-banner cms-banner-${kind}`;
    clear(element, icon("warning"), h("span", {}, text));
  };
  return self;
}

export default { render };
