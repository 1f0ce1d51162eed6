// The entry: anywidget calls render({model, el}) for every view of the Studio.

import { codePanel, copyText, download } from "./code.js";
import { costPanel } from "./cost.js";
import { clear, h, icon, iconButton, offer, segmented, whole } from "./dom.js";
import { Engine } from "./engine.js";
import { findingsPanel } from "./findings.js";
import { AddMenu } from "./gallery.js";
import { inspectPanel } from "./inspect.js";
import { bindKeys, helpSheet, TOOLS } from "./keys.js";
import { OPS, specOf } from "./layers.js";
import { layersPanel, rename } from "./layers_panel.js";
import { Link } from "./link.js";
import { isDark } from "./palette.js";
import { planePanel, propertiesPanel } from "./properties.js";
import { reorderedNote } from "./reordered.js";
import { forgetFragment, openShared, sharedFragment } from "./share.js";
import { Stage } from "./stage.js";
import { hoverBar } from "./status.js";
import { Store } from "./store.js";
import { tablePanel } from "./table.js";

const TILES = [[64, 64], [64, 128], [128, 64], [128, 128], [256, 128]];

function render({ model, el }) {
  const store = new Store(model.get("design"));
  const engine = new Engine(store);
  const link = new Link(model, store, engine);
  const stage = new Stage(store, engine);
  link.templates = model.get("templates") ?? [];

  const live = h("div", { class: "cms-visually-hidden", role: "status", "aria-live": "polite" });
  const say = (text) => { live.textContent = text; };
  const menu = new AddMenu(store, link, link.templates);
  const help = helpSheet();
  const inspect = inspectPanel(store, engine, stage, link);
  const findings = findingsPanel(store, link, stage, say);
  const root = h("div", { class: "cms-studio", "data-lm-suppress-shortcuts": "true" },
    toolbar(store, stage, help),
    banner(store, link),
    h("div", { class: "cms-body" },
      h("aside", { class: "cms-left" }, layersPanel(store, (button) => menu.open(button)), propertiesPanel(store, link), planePanel(store)),
      h("main", { class: "cms-centre" }, stage.element, reorderedNote(store, link, stage), hoverBar(store, engine, stage)),
      h("aside", { class: "cms-right" }, tabs(store, {
        cost: ["Cost", costPanel(store, engine, (report) => say(announcement(store, engine, report)))],
        check: ["Check", findings.element, findings.badge],
        inspect: ["Inspect", inspect.element],
        code: ["Code", codePanel(store, link, model.get("targets") ?? [])],
        table: ["Regions", tablePanel(store)],
      }))),
    menu.element, help, live);
  bindKeys(root, {
    store, stage, help,
    renameActive() {
      const name = root.querySelector(`[data-id="${store.active?.id}"] .cms-layer-name`);
      if (name) rename(store, store.active, name);
    },
    paste: () => store.paste(),
  });
  store.on("design", ({ label }) => label && say(label));
  store.on("refused", ({ label }) => say(label));
  const theme = () => {
    const dark = isDark(el);
    root.dataset.theme = dark ? "dark" : "light";
    if (store.look.dark !== dark) store.set({ dark });
  };
  const watcher = new MutationObserver(theme);
  watcher.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class", "style"] });
  el.replaceChildren(root);
  theme();
  link.start();
  hideFallback(el);
  root.studio = { store, engine, stage, link }; // for the browser tests and the console

  return () => {
    watcher.disconnect();
    engine.dispose();
    link.dispose();
  };
}

/** The static picture in the same output is for notebooks without a kernel; beside the live Studio it is hidden. */
function hideFallback(el, tries = 40) {
  if (!el.isConnected) {
    if (tries > 0) setTimeout(() => hideFallback(el, tries - 1), 50); // the output is put on the page after it is drawn
    return;
  }
  const area = el.closest(".jp-OutputArea, .output_area, .output");
  const hide = () => area?.querySelectorAll(".cms-fallback").forEach((picture) => {
    (picture.closest(".jp-OutputArea-child") ?? picture).style.display = "none";
  });
  hide();
  if (area) new MutationObserver(hide).observe(area, { childList: true, subtree: true });
}

function toolbar(store, stage, help) {
  const tools = h("div", { class: "cms-segmented", role: "radiogroup", "aria-label": "Tool" }, TOOLS.map(([tool, key, label]) => {
    const button = iconButton(tool, label, () => store.set({ tool }), { keys: key, role: "radio" });
    button.dataset.key = tool;
    return button;
  }));
  const op = segmented("New regions", OPS.map((name) => [name, { add: "+ Add", cut: "− Cut", intersect: "∩ Keep" }[name], `New regions ${name}`]), store.look.op, (value) => store.set({ op: value }));
  const mode = segmented("View", [["tiles", "Tiles", "What is computed: full, partial and empty tiles (1)"], ["mask", "Mask", "What is visible, pair by pair (2)"], ["layers", "Layers", "Which layer made each pair visible (3)"], ["order", "Order", "The tiles in the token order that the compiler chooses (4)"]], store.look.mode, (value) => store.set({ mode: value }));
  const tile = h("select", { class: "cms-input", "aria-label": "Tile size", title: "Tile size: queries × keys", onchange: () => store.commit("change the tile size", { tile: tile.value.split("×").map(Number) }) });
  const undo = iconButton("undo", "Undo", () => store.undo(), { keys: "Ctrl+Z" });
  const redo = iconButton("redo", "Redo", () => store.redo(), { keys: "Ctrl+Y" });
  const magnet = iconButton("magnet", "Snap to tiles, edges and powers of two", () => store.set({ snapping: !store.look.snapping }), { keys: "S" });
  const refresh = () => {
    tools.querySelectorAll("button").forEach((button) => button.setAttribute("aria-checked", String(button.dataset.key === store.look.tool)));
    op.show(store.look.op);
    mode.show(store.look.mode);
    magnet.setAttribute("aria-pressed", String(store.look.snapping));
    offer(undo, store.past.length > 0);
    offer(redo, store.future.length > 0);
    undo.title = store.past.length ? `Undo: ${store.past[store.past.length - 1].label} (Ctrl+Z)` : "Nothing to undo";
    const value = store.design.tile.join("×");
    const known = TILES.map((size) => size.join("×"));
    if (tile.value !== value || !tile.options.length) {
      clear(tile, [...new Set([...known, value])].map((size) => h("option", { value: size, selected: size === value }, `${size} tiles`)));
    }
  };
  store.on("look", refresh);
  store.on("design", ({ draft }) => draft || refresh());
  refresh();
  return h("header", { class: "cms-toolbar" },
    h("span", { class: "cms-brand", title: "cmask_lab Studio" }, h("i", { "aria-hidden": "true" }), "Studio"), tools, op,
    h("div", { class: "cms-row" }, undo, redo), h("span", { class: "cms-spring" }), mode, tile,
    h("div", { class: "cms-row" }, magnet, iconButton("minus", "Zoom out", () => stage.zoom(1 / 1.5), { keys: "−" }), iconButton("fit", "Fit the plane", () => stage.fit(), { keys: "0" }),
      iconButton("plus", "Zoom in", () => stage.zoom(1.5), { keys: "+" }), iconButton("help", "Keys", () => { help.hidden = !help.hidden; }, { keys: "?" })));
}

/** One line above the canvas for what must be seen: a lost kernel, a refused message, a disagreement. */
function banner(store, link) {
  const bar = h("div", { class: "cms-banner", role: "alert", hidden: true });
  const state = { connection: "live", problem: "", mismatch: null, report: null };
  const copySpec = h("button", { type: "button", class: "cms-button", onclick: async () => {
    copySpec.textContent = (await copyText(JSON.stringify(specOf(store.design.layers), null, 1))) ? "Copied" : "Copying was refused";
  } }, "Copy spec");
  const saveSpec = h("button", { type: "button", class: "cms-button", onclick: () => download(JSON.stringify(specOf(store.design.layers), null, 1), "mask.json") }, "Download spec");
  const shared = sharedFragment();
  let offered = shared !== "";
  const answerOffer = (open) => {
    offered = false;
    forgetFragment(shared);
    if (open) openShared(store, link, shared);
    show();
    bar.closest(".cms-studio").querySelector(".cms-overlay").focus(); // the button that had the focus is gone
  };
  const openButton = h("button", { type: "button", class: "cms-button", onclick: () => answerOffer(true) }, "Open it here");
  const dismissButton = h("button", { type: "button", class: "cms-button", onclick: () => answerOffer(false) }, "Not now");
  const show = () => {
    const { connection, problem, mismatch, report } = state;
    const [kind, text, more] = connection === "lost"
      ? ["lost", "Disconnected from the kernel. The design is kept here, but nothing is compiled. Run the cell again, or keep the design:", [copySpec, saveSpec]]
      : mismatch ? ["mismatch", `The compiler and this picture disagree on ${whole(mismatch.length)} tiles, painted in magenta. That is a bug in cmask_lab; please report it with the spec:`, [copySpec]]
      : problem ? ["problem", problem, []]
      : report?.ok === false ? ["problem", report.error, []]
      : offered ? ["offer", "The address of this page holds a shared design. Opening it replaces the one shown; undo brings that back.", [openButton, dismissButton]]
      : connection === "busy" ? ["busy", "The kernel is busy; numbers of the compiler follow when it answers.", []] : ["", "", []];
    bar.hidden = kind === "";
    bar.className = `cms-banner cms-banner-${kind}`;
    clear(bar, icon("warning"), h("span", {}, text), more);
  };
  store.on("connection", (connection) => { state.connection = connection; copySpec.textContent = "Copy spec"; show(); });
  store.on("problem", (problem) => { state.problem = problem; show(); });
  store.on("report", (report) => { state.report = report; show(); });
  link.engine.addEventListener("checked", () => { state.mismatch = link.engine.mismatch; show(); });
  show();
  return bar;
}

function tabs(store, panels) {
  const buttons = Object.entries(panels).map(([key, [label, , badge]]) => h("button", {
    type: "button", class: "cms-tab", role: "tab", "data-key": key, onclick: () => store.set({ panel: key }),
    onkeydown(event) {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = buttons[(buttons.indexOf(event.target) + by + buttons.length) % buttons.length];
      next.focus();
      next.click();
    },
  }, label, badge));
  const bodies = Object.entries(panels).map(([key, [label, element]]) => h("div", { class: "cms-panel", role: "tabpanel", "aria-label": label, "data-key": key }, element));
  const show = () => {
    buttons.forEach((button) => {
      const on = button.dataset.key === store.look.panel;
      button.setAttribute("aria-selected", String(on));
      button.tabIndex = on ? 0 : -1;
    });
    bodies.forEach((body) => { body.hidden = body.dataset.key !== store.look.panel; });
  };
  store.on("look", show);
  show();
  return h("div", { class: "cms-tabs" }, h("div", { class: "cms-tablist", role: "tablist", "aria-label": "Panels" }, buttons), bodies);
}

function announcement(store, engine, report) {
  const totals = engine.tally.totals();
  const n = store.active ? store.design.layers.indexOf(store.active) + 1 : 0;
  const which = n ? `region ${n}, ${store.active.name}: ` : "";
  return report.ok ? `${which}${whole(totals.full)} full tiles, ${whole(totals.partial)} partial, ${(100 * totals.density).toFixed(1)} % visible` : report.error;
}

export default { render };

