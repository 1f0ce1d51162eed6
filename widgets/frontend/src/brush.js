// The grid brush: a small image of the token grid. The pointer picks the query's cell, dragging from it sets the
// radius; the cells that it sees are painted.

import { h } from "./dom.js";
import { gridRegion } from "./grids.js";
import { PALETTES } from "./palette.js";
import { Row } from "./row.js";

const SIZE = 200;

/** The node with its radius (or window) set so that it just reaches `dy`, `dx` cells away; null when the kind has none. */
export function reaching(node, dy, dx) {
  if (node.kind === "disk") return { ...node, radius: Math.max(1, Math.ceil(Math.hypot(dy, dx))) };
  if (node.kind === "box") return { ...node, radii: [Math.round(Math.abs(dy)), Math.round(Math.abs(dx))] };
  if (node.kind === "neighborhood") {
    return { ...node, size: [dy, dx].map((d, axis) => Math.min(2 * Math.round(Math.abs(d)) + 1, node.shape[axis] - (1 - (node.shape[axis] % 2)))) };
  }
  return null;
}

export function gridBrush(store, layer) {
  const [rows, columns] = layer.node.shape;
  const cell = Math.max(1, Math.floor(SIZE / Math.max(rows, columns)));
  const scale = Math.min(SIZE / Math.max(rows, columns), cell > 1 ? cell : Infinity);
  const canvas = h("canvas", {
    class: "cms-brush", role: "img", tabindex: "-1",
    "aria-label": `Token grid ${rows} high, ${columns} wide. Drag from a cell to set how far it sees; the fields above do the same.`,
  });
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  canvas.width = Math.max(1, Math.round(columns * scale * ratio));
  canvas.height = Math.max(1, Math.round(rows * scale * ratio));
  canvas.style.width = `${columns * scale}px`;
  canvas.style.height = `${rows * scale}px`;
  let centre = [Math.floor(rows / 2), Math.floor(columns / 2)];
  let { node } = layer;
  const paint = () => {
    const palette = store.look.dark ? PALETTES.dark : PALETTES.light;
    const ctx = canvas.getContext("2d");
    ctx.setTransform(scale * ratio, 0, 0, scale * ratio, 0, 0);
    ctx.fillStyle = palette.plot;
    ctx.fillRect(0, 0, columns, rows);
    const row = gridRegion(node, { rows: rows * columns, keys: rows * columns }).row(centre[0] * columns + centre[1], new Row());
    ctx.fillStyle = palette.full;
    const gap = scale >= 5 ? 1 / scale : 0;
    for (const [start, stop] of row.pairs()) {
      for (let token = start; token < stop; token++) ctx.fillRect(token % columns, Math.floor(token / columns), 1 - gap, 1 - gap);
    }
    ctx.fillStyle = palette.partialHigh;
    const mark = Math.max(1, 3 / scale);
    ctx.fillRect(centre[1] + 0.5 - mark / 2, centre[0] + 0.5 - mark / 2, mark, mark);
  };
  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientY - box.top) / scale - 0.5, (event.clientX - box.left) / scale - 0.5];
  };
  canvas.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    canvas.setPointerCapture(event.pointerId);
    const [y, x] = cellAt(event);
    centre = [Math.min(rows - 1, Math.max(0, Math.round(y))), Math.min(columns - 1, Math.max(0, Math.round(x)))];
    let changed = false;
    const move = (moved) => {
      const [my, mx] = cellAt(moved);
      const next = reaching(node, my - centre[0], mx - centre[1]);
      if (!next || Math.hypot(my - y, mx - x) < 0.5) return;
      node = next;
      changed = true;
      paint();
      store.preview({ layers: store.withLayer(layer.id, { node }) });
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", () => {
      canvas.removeEventListener("pointermove", move);
      if (changed) store.commit(`brush ${layer.name}`);
      else paint();
    }, { once: true });
  });
  paint();
  return h("figure", { class: "cms-wide cms-brush-figure" }, canvas,
    h("figcaption", { class: "cms-hint" }, "What the marked query sees. Drag from a cell to set the radius."));
}
