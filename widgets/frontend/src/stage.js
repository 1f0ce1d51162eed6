// The canvas: the picture of the plane below, and above it a second canvas with selection, handles and crosshair, so
// that a hover redraws no tile.

import { h } from "./dom.js";
import { edgesOf } from "./geometry.js";
import { drawOverlay } from "./overlay.js";
import { PALETTES } from "./palette.js";
import { Picture } from "./picture.js";
import { bindPointer } from "./pointer.js";
import { View } from "./view.js";

const GUTTER = { left: 46, top: 26 };
const FONT = "11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";

export class Stage {
  constructor(store, engine) {
    this.store = store;
    this.engine = engine;
    this.view = new View();
    this.picture = new Picture();
    this.hover = null; // {i, j}: the pair under the pointer
    this.guides = []; // snap lines shown while dragging
    this.base = h("canvas", { class: "cms-canvas", "aria-hidden": "true" });
    this.top = h("canvas", {
      class: "cms-canvas cms-overlay", tabindex: "0", role: "application", "data-lm-suppress-shortcuts": "true",
      "aria-roledescription": "mask canvas",
      "aria-label": "Plane of queries (down) and keys (across). Arrows nudge the selected layer, ? shows all keys; the Regions tab has the same as a table.",
    });
    this.element = h("div", { class: "cms-stage" }, this.base, this.top);
    this.frames = []; // times between drawn frames while dragging, for the measurements of the tests
    new ResizeObserver(() => this.resize()).observe(this.element);
    store.on("design", () => this.designChanged());
    store.on("selection", () => this.redraw(true));
    store.on("look", () => this.redraw());
    engine.addEventListener("progress", () => this.redraw());
    engine.addEventListener("checked", () => this.redraw());
    bindPointer(this);
    this.designChanged();
  }

  get palette() {
    return this.store.look.dark ? PALETTES.dark : PALETTES.light;
  }

  get plane() {
    return this.store.design;
  }

  designChanged() {
    const { q_len, kv_len, q_start } = this.store.design;
    const old = this.view.plane;
    this.view.plane = { q_len, kv_len, q_start };
    if (old.q_len !== q_len || old.kv_len !== kv_len || old.q_start !== q_start) this.view.fit();
    this.picture.invalidate();
    this.redraw();
  }

  resize() {
    const box = this.element.getBoundingClientRect();
    if (box.width < 10 || box.height < 10) return;
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    for (const canvas of [this.base, this.top]) {
      canvas.width = Math.round(box.width * this.ratio);
      canvas.height = Math.round(box.height * this.ratio);
    }
    const keep = this.view.fitted !== false;
    this.view.width = box.width - GUTTER.left - 1;
    this.view.height = box.height - GUTTER.top - 1;
    if (keep) this.view.fit();
    this.draw();
  }

  /** Asks for a new frame; `light` when only what lies above the picture changed. */
  redraw(light = false) {
    this.heavy = this.heavy || !light;
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (this.heavy) this.draw();
      else this.drawTop();
    });
  }

  draw() {
    this.heavy = false;
    if (!this.ratio) return;
    const { base, view, ratio, palette, engine, store } = this;
    const ctx = base.getContext("2d");
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.fillStyle = palette.outside;
    ctx.fillRect(0, 0, base.width, base.height);
    this.plot ??= document.createElement("canvas");
    const [w, h2] = [Math.round(view.width * ratio), Math.round(view.height * ratio)];
    if (this.plot.width !== w || this.plot.height !== h2) Object.assign(this.plot, { width: w, height: h2 });
    this.picture.draw(this.plot.getContext("2d"), {
      view, ratio, palette, fold: engine.fold, tally: engine.tally, design: store.design, mode: store.look.mode, mismatch: engine.mismatch, reordered: store.reordered,
    });
    ctx.drawImage(this.plot, Math.round(GUTTER.left * ratio), Math.round(GUTTER.top * ratio));
    this.picture.drawRulers(ctx, view, GUTTER, ratio, palette, FONT);
    const now = performance.now();
    if (this.drawn) this.frames.push(now - this.drawn);
    if (this.frames.length > 600) this.frames.splice(0, 300);
    this.drawn = now;
    this.drawTop();
  }

  drawTop() {
    if (!this.ratio) return;
    const ctx = this.top.getContext("2d");
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, this.top.width, this.top.height);
    if (this.store.look.mode === "order") return; // selection and handles have no place there
    drawOverlay(ctx, this, GUTTER, FONT);
  }

  /** The pair under a pointer event, as fractions of tokens. */
  at(event) {
    const box = this.top.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - GUTTER.left, event.clientY - box.top - GUTTER.top];
    return { x, y, i: this.view.query(y), j: this.view.key(x), inside: x >= 0 && y >= 0 };
  }

  setHover(pair) {
    const { q_start, q_len, kv_len } = this.plane;
    const ok = pair && pair.i >= q_start && pair.i < q_start + q_len && pair.j >= 0 && pair.j < kv_len;
    this.hover = ok ? { i: Math.floor(pair.i), j: Math.floor(pair.j) } : null;
    this.store.emit("hover", this.hover);
    this.redraw(true);
  }

  zoom(factor, x, y) {
    this.view.zoom(factor, x, y);
    this.store.emit("view");
    this.redraw();
  }

  fit() {
    this.view.fit();
    this.store.emit("view");
    this.redraw();
  }

  show(q, k) {
    this.view.show(q, k);
    this.store.emit("view");
    this.redraw();
  }

  /** Fits the active layer's box, or its edges, into the view. */
  showSelection() {
    const { active } = this.store;
    if (!active) return;
    const { q_start, q_len, kv_len } = this.plane;
    const of = (axis, all) => {
      const at = edgesOf(active.node).filter((edge) => edge.axis === axis).map((edge) => edge.at);
      return at.length > 1 ? [Math.min(...at), Math.max(...at)] : all;
    };
    this.show(of("query", [q_start, q_start + q_len]), of("key", [0, kv_len]));
  }
}
