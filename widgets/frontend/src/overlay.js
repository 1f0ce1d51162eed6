// What lies above the picture: the outline and handles of the selection, snap guides, the crosshair, the pinned tile.

import { boxOf, edgesOf, handlesOf } from "./geometry.js";

const HANDLE = 8;

/** Where a handle is drawn, in plot pixels; lines are held at the middle of what is in sight. */
export function handlePlace(handle, view) {
  if (handle.at === "point") return { x: view.x(handle.j), y: view.y(handle.i) };
  const { q_start, q_len, kv_len } = view.plane;
  const [top, bottom] = [Math.max(q_start, view.top), Math.min(q_start + q_len, view.query(view.height))];
  if (handle.at === "key") return { x: view.x(handle.j), y: view.y((top + bottom) / 2) };
  const [left, right] = [Math.max(0, view.left), Math.min(kv_len, view.key(view.width))];
  const low = Math.max(top, left - handle.offset);
  const high = Math.min(bottom, right - handle.offset);
  const i = (low + high) / 2;
  return { x: view.x(i + handle.offset), y: view.y(i), hidden: high < low };
}

export function cursorOf(handle) {
  if (handle.at === "key") return "ew-resize";
  if (handle.at === "diagonal") return "nesw-resize";
  return { n: "ns-resize", s: "ns-resize", e: "ew-resize", w: "ew-resize", nw: "nwse-resize", se: "nwse-resize", ne: "nesw-resize", sw: "nesw-resize" }[handle.id] ?? "move";
}

export function drawOverlay(ctx, stage, gutter, font) {
  const { view, store, palette, ratio } = stage;
  ctx.setTransform(ratio, 0, 0, ratio, gutter.left * ratio, gutter.top * ratio);
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, 0, view.width, view.height);
  ctx.clip();
  drawPinned(ctx, stage);
  for (const id of store.selection) {
    const layer = store.layer(id);
    if (layer) drawOutline(ctx, layer, stage, layer === store.active);
  }
  drawGuides(ctx, stage, font);
  if (stage.hover && !stage.dragging) drawCrosshair(ctx, stage);
  ctx.restore();
  if (stage.hover) drawRulerMarks(ctx, stage, gutter, font, palette);
}

/** Twice: a wide light stroke, then the dark line, so that it shows on any colour. */
function strokeTwice(ctx, palette, width = 1.5, dash = []) {
  ctx.setLineDash([]);
  ctx.strokeStyle = palette.halo;
  ctx.lineWidth = width + 2.5;
  ctx.stroke();
  ctx.setLineDash(dash);
  ctx.strokeStyle = palette.ink;
  ctx.lineWidth = width;
  ctx.stroke();
  ctx.setLineDash([]);
}

function drawOutline(ctx, layer, stage, active) {
  const { view, palette } = stage;
  const plane = view.plane;
  const { node } = layer;
  ctx.beginPath();
  if (node.type === "rect" || node.type === "at") {
    const { q, k } = boxOf(node, plane);
    ctx.rect(view.x(k[0]), view.y(q[0]), (k[1] - k[0]) * view.sx, (q[1] - q[0]) * view.sy);
  } else if (node.type === "documents" && node.lengths) {
    let start = 0;
    for (const length of node.lengths) {
      ctx.rect(view.x(start), view.y(start), length * view.sx, length * view.sy);
      start += length;
    }
  } else {
    const end = plane.q_start + plane.q_len;
    for (const { axis, at } of edgesOf(node)) {
      if (axis === "key") {
        ctx.moveTo(view.x(at), view.y(plane.q_start));
        ctx.lineTo(view.x(at), view.y(end));
      } else if (axis === "query") {
        ctx.moveTo(view.x(0), view.y(at));
        ctx.lineTo(view.x(plane.kv_len), view.y(at));
      } else {
        const low = Math.max(plane.q_start, -at);
        const high = Math.min(end, plane.kv_len - at);
        ctx.moveTo(view.x(low + at), view.y(low));
        ctx.lineTo(view.x(high + at), view.y(high));
      }
    }
  }
  strokeTwice(ctx, palette, 1.5, layer.visible ? [] : [5, 4]);
  if (!active || layer.locked) return;
  for (const handle of handlesOf(node, plane)) {
    const { x, y, hidden } = handlePlace(handle, view);
    if (hidden) continue;
    ctx.beginPath();
    if (handle.at === "point") ctx.rect(x - HANDLE / 2, y - HANDLE / 2, HANDLE, HANDLE);
    else ctx.arc(x, y, HANDLE / 2 + 0.5, 0, 2 * Math.PI);
    ctx.fillStyle = palette.plot;
    ctx.fill();
    ctx.strokeStyle = palette.ink;
    ctx.lineWidth = 1.5;
    ctx.stroke();
  }
}

function drawGuides(ctx, stage, font) {
  const { view, palette, guides } = stage;
  ctx.strokeStyle = palette.guide;
  ctx.fillStyle = palette.guide;
  ctx.lineWidth = 1;
  ctx.font = font;
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left";
  for (const { axis, at, why } of guides) {
    ctx.beginPath();
    if (axis === "key") {
      ctx.moveTo(view.x(at), 0);
      ctx.lineTo(view.x(at), view.height);
      ctx.fillText(why, view.x(at) + 4, view.height - 4);
    } else if (axis === "query") {
      ctx.moveTo(0, view.y(at));
      ctx.lineTo(view.width, view.y(at));
      ctx.fillText(why, 6, view.y(at) - 2);
    } else {
      ctx.moveTo(view.x(view.top + at), 0);
      ctx.lineTo(view.x(view.query(view.height) + at), view.height);
    }
    ctx.stroke();
  }
}

function drawCrosshair(ctx, stage) {
  const { view, palette, hover } = stage;
  const [w, h] = [Math.max(1, view.sx), Math.max(1, view.sy)];
  ctx.fillStyle = palette.rowBand;
  if (view.sx >= 3) ctx.fillRect(view.x(hover.j), 0, w, view.height);
  if (view.sy >= 3) ctx.fillRect(0, view.y(hover.i), view.width, h);
  const [x, y] = [Math.round(view.x(hover.j + 0.5)) + 0.5, Math.round(view.y(hover.i + 0.5)) + 0.5];
  ctx.beginPath();
  ctx.moveTo(x, 0);
  ctx.lineTo(x, view.height);
  ctx.moveTo(0, y);
  ctx.lineTo(view.width, y);
  ctx.strokeStyle = palette.halo;
  ctx.globalAlpha = 0.5;
  ctx.lineWidth = 3;
  ctx.stroke();
  ctx.globalAlpha = 0.75;
  ctx.strokeStyle = palette.ink;
  ctx.lineWidth = 1;
  ctx.stroke();
  ctx.globalAlpha = 1;
}

function drawPinned(ctx, stage) {
  const { view, store, palette } = stage;
  const { pinned } = store.look;
  if (!pinned) return;
  const [qTile, kTile] = store.design.tile;
  const { q_start } = store.design;
  const row = Math.floor((pinned.i - q_start) / qTile);
  const column = Math.floor(pinned.j / kTile);
  ctx.beginPath();
  ctx.rect(view.x(0), view.y(q_start + row * qTile), view.plane.kv_len * view.sx, Math.max(2, qTile * view.sy));
  ctx.fillStyle = palette.rowBand;
  ctx.fill();
  ctx.beginPath();
  const [w, h] = [Math.max(6, kTile * view.sx), Math.max(6, qTile * view.sy)];
  ctx.rect(view.x(column * kTile), view.y(q_start + row * qTile), w, h);
  strokeTwice(ctx, palette, 1.5, [4, 3]);
}

/** The position under the pointer, on both rulers. */
function drawRulerMarks(ctx, stage, gutter, font, palette) {
  const { view, hover, ratio } = stage;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.font = font;
  ctx.textBaseline = "middle";
  ctx.textAlign = "center";
  const mark = (text, x, y, align) => {
    const width = ctx.measureText(text).width + 8;
    const left = align === "center" ? x - width / 2 : x - width;
    ctx.fillStyle = palette.ink;
    ctx.beginPath();
    ctx.roundRect(left, y - 8, width, 16, 3);
    ctx.fill();
    ctx.fillStyle = palette.plot;
    ctx.fillText(text, left + width / 2, y + 0.5);
  };
  const x = Math.min(Math.max(gutter.left + view.x(hover.j + 0.5), gutter.left + 16), gutter.left + view.width - 16);
  mark(`${hover.j}`, x, gutter.top - 12, "center");
  mark(`${hover.i}`, gutter.left - 3, Math.max(gutter.top + 8, gutter.top + view.y(hover.i + 0.5)), "right");
}
