// What the linter has to say of the design: Python looks, latest question first; here is the list, and the number on
// its tab. A finding shows its rows on the canvas, and one that a single layer mends offers that layer.

import { clear, h, icon } from "./dom.js";

const QUIET_MS = 250; // after the last edit
const MOST_INTERVALS = 2 ** 20; // of larger masks the linter speaks only to those who look

const SEVERITIES = { error: ["close", "error"], warning: ["warning", "warning"], note: ["help", "note"] };

export function findingsPanel(store, link, stage, say) {
  const list = h("ul", { class: "cms-findings", "aria-label": "Findings" });
  const status = h("p", { class: "cms-hint", role: "status" });
  const badge = h("span", { class: "cms-badge", hidden: true });
  const causal = h("input", { type: "checkbox", onchange: () => look() });
  let timer = null;
  let told = "";

  const settled = () => {
    clearTimeout(timer);
    const { report } = link;
    if (!report?.ok || report.draft || report.rev !== store.design.rev) return;
    if (store.look.panel === "check" || report.stats.intervals <= MOST_INTERVALS) timer = setTimeout(look, QUIET_MS);
    else forget("Open this panel while the mask rests, and the linter looks at it.");
  };
  const forget = (text) => {
    clear(list);
    badge.hidden = true;
    status.textContent = text;
  };
  const look = async () => {
    const { rev } = store.design;
    list.classList.add("cms-stale");
    if (!list.children.length) status.textContent = "The linter looks at the mask …";
    const answer = await link.ask("check", { rev, causal: causal.checked });
    if (store.design.rev !== rev) return;
    list.classList.remove("cms-stale");
    if (answer.error) forget(answer.error);
    else show(answer.found);
  };
  const show = (found) => {
    clear(list, found.map((finding) => item(store, stage, finding)));
    const count = (severity) => found.filter((finding) => finding.severity === severity).length;
    const [errors, warnings, notes] = ["error", "warning", "note"].map(count);
    const words = [[errors, "error"], [warnings, "warning"], [notes, "note"]].filter(([n]) => n).map(([n, word]) => `${n} ${word}${n > 1 ? "s" : ""}`).join(", ");
    status.textContent = found.length ? "" : "Nothing to say: every query sees a key, lengths and windows agree, the work is even.";
    badge.textContent = String(errors + warnings || notes);
    badge.className = `cms-badge cms-badge-${errors ? "error" : warnings ? "warning" : "note"}`;
    badge.hidden = found.length === 0;
    badge.title = words;
    if (words !== told && words) say(`The linter found ${words}`);
    told = words;
  };
  store.on("report", settled);
  store.on("look", (change) => change.panel === "check" && settled());
  const element = h("div", { class: "cms-findings-panel" },
    h("label", { class: "cms-check-line" }, causal, h("span", {}, "The model must not see the future")), status, list);
  return { element, badge };
}

function item(store, stage, finding) {
  const [picture, word] = SEVERITIES[finding.severity];
  const place = finding.rows.length && h("button", { type: "button", class: "cms-button", title: "Show these rows on the canvas", onclick: () => goTo(store, stage, finding.rows) },
    icon("fit"), `Show ${finding.rows_count === 1 ? "it" : "them"}`);
  const mend = finding.mend && h("button", { type: "button", class: "cms-button", title: `Add a layer on top: ${finding.mend.name}`, onclick: () => apply(store, finding) },
    icon("plus"), `Add “${finding.mend.name}”`);
  return h("li", { class: `cms-finding cms-finding-${finding.severity}` },
    h("p", { class: "cms-finding-head" }, icon(picture), h("b", {}, word), h("code", {}, finding.rule)),
    h("p", {}, sentence(finding.message), finding.place ? h("span", { class: "cms-hint" }, ` ${sentence(finding.place)}`) : ""),
    h("p", { class: "cms-finding-remedy" }, sentence(finding.remedy)),
    place || mend ? h("div", { class: "cms-row" }, place, mend) : null);
}

/** Zooms to the first range of rows, over all keys that fit, and pins its first query. */
function goTo(store, stage, rows) {
  const { kv_len } = store.design;
  const [start, stop] = rows[0];
  const side = Math.max(stop - start, 16);
  const key = Math.min(start, kv_len - 1);
  const left = Math.max(0, Math.min(key + side, kv_len) - side);
  store.set({ pinned: { i: start, j: key }, ...(store.look.mode === "order" ? { mode: "tiles" } : {}) });
  stage.show([start, start + side], [left, left + side]);
}

function apply(store, { mend }) {
  store.select(store.design.layers.length ? [store.design.layers[store.design.layers.length - 1].id] : []);
  store.add(mend.node, { op: mend.op, name: mend.name });
}

/** "query 3 sees key 9" → "Query 3 sees key 9."; code keeps its case. */
export function sentence(text) {
  const start = /^[a-z]+[ ,:]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
  return /[.!?]$/.test(start) ? start : `${start}.`;
}
