// The code panel: the design in a target's own words, to copy or to keep.

import { canInsert, insertCell } from "./cell.js";
import { clear, h, icon, offer } from "./dom.js";
import { linkButton } from "./share.js";

const WAIT_MS = 250; // after the last change
const WORDS = {
  python: /(#[^\n]*)|("""[\s\S]*?"""|"[^"\n]*"|'[^'\n]*')|\b(def|return|import|from|as|for|in|if|else|elif|class|lambda|not|and|or|is|None|True|False|with|while|raise|assert|pass)\b|\b(\d[\d_.eE]*)\b/g,
  json: /()("(?:[^"\\]|\\.)*")|\b(true|false|null)\b|(-?\b\d[\d.eE+-]*)\b/g,
};
const CLASSES = ["cms-c-comment", "cms-c-string", "cms-c-word", "cms-c-number"];

export function codePanel(store, link, targets) {
  const output = h("pre", { class: "cms-code", tabindex: "0", "aria-label": "Exported code" });
  const note = h("p", { class: "cms-hint", role: "status" });
  const choice = h("select", { class: "cms-input", "aria-label": "Export target", onchange: () => refresh(0) }, targets.map((target) => h("option", { value: target }, target)));
  let text = "";
  let timer = null;
  const tell = (words, wrong = false) => {
    note.textContent = words;
    note.classList.toggle("cms-error", wrong);
  };
  const refresh = (wait = WAIT_MS) => {
    clearTimeout(timer);
    if (store.look.panel !== "code" || targets.length === 0) return;
    timer = setTimeout(async () => {
      const answer = await link.ask("code", { target: choice.value, rev: store.design.rev });
      text = answer.text ?? "";
      if (insert) offer(insert, answer.language === "python");
      tell(answer.error ?? answer.note ?? "", Boolean(answer.error));
      clear(output, highlighted(text, WORDS[answer.language] ? answer.language : "python"));
    }, wait);
  };
  store.on("design", ({ draft }) => draft || refresh());
  store.on("look", (change) => "panel" in change && refresh(0));
  const copy = h("button", { type: "button", class: "cms-button", onclick: async () => tell((await copyText(text)) ? "Copied." : "The browser did not allow copying; select the text instead.") }, icon("copy"), "Copy");
  const save = h("button", { type: "button", class: "cms-button", onclick: () => download(text, `mask.${choice.value === "json" ? "json" : "py"}`) }, icon("download"), "Download");
  const insert = canInsert(link.model) && h("button", {
    type: "button", class: "cms-button", title: "Insert this code as a new cell under this one",
    onclick: () => tell(insertCell(link.model, insert, text) ? "Inserted as a new cell below." : "This notebook takes no cells from here; copy the code."),
  }, icon("cell"), "Cell");
  if (targets.length === 0) note.textContent = "This installation has no exporters.";
  return h("div", { class: "cms-code-panel" }, choice, h("div", { class: "cms-row cms-code-actions" }, copy, save, insert, linkButton(link, tell)), note, output);
}

/** Text as nodes, keywords, strings, numbers and comments in spans; never as HTML. */
export function highlighted(text, language) {
  const nodes = [];
  let last = 0;
  for (const match of text.matchAll(WORDS[language])) {
    const group = match.slice(1).findIndex(Boolean);
    if (group < 0) continue;
    nodes.push(text.slice(last, match.index), h("span", { class: CLASSES[group] }, match[0]));
    last = match.index + match[0].length;
  }
  nodes.push(text.slice(last));
  return nodes;
}

/** True when the text went to the clipboard. Inside frames without that right a hidden field does it. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = h("textarea", { value: text, style: "position:fixed;opacity:0" });
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

export function download(text, name) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
