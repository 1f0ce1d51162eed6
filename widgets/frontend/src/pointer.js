// Pointer and wheel on the canvas: pan and zoom, pick, move, resize, draw. A gesture is an object with move() and end().

import { dragHandle, drawnNode, edgesOf, handlesOf, moveNode, snap, splitDocument } from "./geometry.js";
import { cursorOf, handlePlace } from "./overlay.js";
import { compileRegion } from "./regions.js";
import { Row } from "./row.js";
import { makeLayer } from "./layers.js";

const NEAR_PX = 9; // how close to a handle a press takes hold of it
const SNAP_PX = 6;
const CLICK_PX = 3;
const DOUBLE_MS = 600;

export function bindPointer(stage) {
  const { top, store } = stage;
  let gesture = null;
  let pressed = -Infinity;
  let before = null; // the layer that was active when the first press of a double click came

  top.addEventListener("pointerdown", (event) => {
    if (event.timeStamp - pressed > DOUBLE_MS) before = store.active?.id ?? null;
    pressed = event.timeStamp;
    if (event.button > 1) return;
    event.preventDefault();
    top.focus({ preventScroll: true });
    top.setPointerCapture(event.pointerId);
    const at = stage.at(event);
    gesture = begin(stage, at, event);
    stage.dragging = gesture.holds ?? false;
    stage.redraw(true);
  });
  top.addEventListener("pointermove", (event) => {
    const at = stage.at(event);
    stage.setHover(at.inside ? at : null);
    if (gesture) gesture.move(at, event);
    else top.style.cursor = cursorAt(stage, at);
  });
  const finish = (event, cancelled) => {
    if (!gesture) return;
    const ended = gesture;
    gesture = null;
    stage.dragging = false;
    stage.guides = [];
    if (cancelled) store.cancel();
    else ended.end?.(stage.at(event), event);
    stage.redraw();
  };
  top.addEventListener("pointerup", (event) => finish(event, false));
  top.addEventListener("pointercancel", (event) => finish(event, true));
  top.addEventListener("pointerleave", () => gesture ?? stage.setHover(null));
  top.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && gesture) {
      event.stopPropagation();
      finish(event, true);
    }
  });
  top.addEventListener("dblclick", (event) => {
    const { active } = store;
    const at = stage.at(event);
    if (active?.id === before && active?.node.type === "documents" && active.node.lengths && !active.locked) {
      const node = splitDocument(active.node, Math.round((at.i + at.j) / 2));
      if (node !== active.node) store.edit(active.id, { node }, `split a document of ${active.name}`);
    } else zoomToTile(stage, at);
  });
  top.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls the page
    event.preventDefault();
    const at = stage.at(event);
    stage.zoom(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0022)), at.x, at.y);
  }, { passive: false });
}

/** Looks at one tile, so large that its tokens can be told apart. */
export function zoomToTile(stage, { i, j }) {
  const { tile, q_start } = stage.store.design;
  const q = q_start + Math.floor((i - q_start) / tile[0]) * tile[0];
  const k = Math.floor(j / tile[1]) * tile[1];
  stage.show([q, q + tile[0]], [k, k + tile[1]]);
}

function handleAt(stage, at) {
  const { active } = stage.store;
  if (!active || active.locked || stage.store.look.tool !== "select") return null;
  let best = null;
  for (const handle of handlesOf(active.node, stage.plane)) {
    const place = handlePlace(handle, stage.view);
    const away = place.hidden ? Infinity : Math.hypot(place.x - at.x, place.y - at.y);
    if (away <= NEAR_PX && (!best || away < best.away)) best = { handle, away };
  }
  return best?.handle ?? null;
}

/** The topmost visible layer that holds the pair. */
export function layerAt(stage, { i, j }) {
  const { layers, q_start, q_len, kv_len } = stage.store.design;
  const query = Math.floor(i);
  if (query < q_start || query >= q_start + q_len || j < 0 || j >= kv_len) return null;
  const row = new Row();
  for (const layer of layers.toReversed()) {
    if (!layer.visible) continue;
    const region = compileRegion(layer.node, { rows: q_start + q_len, keys: kv_len });
    if (query >= region.from && query < region.stop && region.row(query, row).has(Math.floor(j))) return layer;
  }
  return null;
}

function cursorAt(stage, at) {
  const { tool } = stage.store.look;
  if (tool === "hand") return "grab";
  if (tool !== "select") return "crosshair";
  const handle = handleAt(stage, at);
  return handle ? cursorOf(handle) : "default";
}

function begin(stage, at, event) {
  const { store } = stage;
  const { tool } = store.look;
  if (tool === "hand" || event.button === 1 || stage.spaceHeld) return panning(stage, at);
  if (tool !== "select") return drawing(stage, at, tool, event);
  const handle = handleAt(stage, at);
  if (handle) return resizing(stage, handle);
  const hit = layerAt(stage, at);
  if (hit && (event.shiftKey || event.ctrlKey || event.metaKey)) {
    const { selection } = store;
    store.select(selection.includes(hit.id) ? selection.filter((id) => id !== hit.id) : [...selection, hit.id]);
    return { move() {} };
  }
  // What is selected stays held, even where another layer covers it: so a hidden corner can still be dragged.
  const held = store.active && layerHolds(stage, store.active, at) ? store.active : hit;
  return moving(stage, at, held, hit);
}

function layerHolds(stage, layer, { i, j }) {
  const { q_start, q_len, kv_len } = stage.store.design;
  const region = compileRegion(layer.node, { rows: q_start + q_len, keys: kv_len });
  const query = Math.floor(i);
  return query >= region.from && query < region.stop && region.row(query, new Row()).has(Math.floor(j));
}

function panning(stage, from) {
  let last = from;
  stage.top.style.cursor = "grabbing";
  return {
    move(at) {
      stage.view.pan(at.x - last.x, at.y - last.y);
      last = at;
      stage.store.emit("view");
      stage.redraw();
    },
  };
}

/** Press and let go selects and pins the pair; press and move drags the layer, or the plane where there is none. */
function moving(stage, from, held, hit) {
  const { store } = stage;
  let started = false;
  let inner = null;
  const original = held?.node;
  return {
    move(at, event) {
      if (!started && Math.hypot(at.x - from.x, at.y - from.y) < CLICK_PX) return;
      if (!started) {
        started = true;
        const movable = held && !held.locked && moveNode(original, 0, 0, stage.plane);
        if (movable) store.select([held.id]);
        else inner = panning(stage, from);
        stage.dragging = Boolean(movable);
      }
      if (inner) {
        inner.move(at);
        return;
      }
      const node = snappedMove(stage, original, from, at, held, event);
      store.preview({ layers: store.withLayer(held.id, { node }) });
    },
    end(at) {
      if (started) {
        if (!inner) store.commit(`move ${held.name}`);
        return;
      }
      store.select(hit ? [hit.id] : []);
      const { q_start, q_len, kv_len } = stage.plane;
      const inside = at.i >= q_start && at.i < q_start + q_len && at.j >= 0 && at.j < kv_len;
      store.set({ pinned: inside ? { i: Math.floor(at.i), j: Math.floor(at.j) } : null });
    },
  };
}

/** Edges of all other layers on one axis. */
function otherEdges(stage, own, axis) {
  return stage.store.design.layers.filter((layer) => layer !== own && layer.id !== own?.id && layer.visible)
    .flatMap((layer) => edgesOf(layer.node)).filter((edge) => edge.axis === axis).map((edge) => edge.at);
}

function snapped(stage, value, axis, own, event) {
  const scale = axis === "query" ? stage.view.sy : stage.view.sx;
  const { tile, q_start, q_len, kv_len } = stage.store.design;
  if (!stage.store.look.snapping || event.altKey) return { value: Math.round(value), why: "" };
  return snap(value, {
    edges: otherEdges(stage, own, axis), tile: tile[axis === "query" ? 0 : 1], reach: SNAP_PX / scale,
    limit: axis === "query" ? q_start + q_len : axis === "key" ? kv_len : Infinity,
  });
}

function guideFor(axis, { value, why }) {
  return why ? [{ axis, at: value, why }] : [];
}

function snappedMove(stage, node, from, at, own, event) {
  const moved = moveNode(node, Math.round(at.i - from.i), Math.round(at.j - from.j), stage.plane);
  stage.guides = [];
  if (moved.type !== "rect" && moved.type !== "at") return moved;
  const by = { query: 0, key: 0 };
  for (const [axis, range] of [["query", moved.q], ["key", moved.k]]) {
    if (!range) continue;
    const tries = range.map((edge) => ({ edge, ...snapped(stage, edge, axis, own, event) })).filter((found) => found.why);
    tries.sort((a, b) => Math.abs(a.value - a.edge) - Math.abs(b.value - b.edge));
    if (!tries.length) continue;
    by[axis] = tries[0].value - tries[0].edge;
    stage.guides.push(...guideFor(axis, tries[0]));
  }
  return moveNode(moved, by.query, by.key, stage.plane);
}

function resizing(stage, handle) {
  const { store } = stage;
  const layer = store.active;
  const original = layer.node;
  return {
    holds: true,
    move(at, event) {
      stage.guides = [];
      let [i, j] = [at.i, at.j];
      if (handle.at === "diagonal") {
        const offset = snapped(stage, at.j - at.i, "diagonal", layer, event);
        stage.guides = guideFor("diagonal", offset);
        [i, j] = [0, offset.value];
      } else {
        const sideways = handle.at === "key" || /[ew]/.test(handle.id) || !/[nsew]/.test(handle.id);
        const upright = handle.at !== "key" && (/[ns]/.test(handle.id) || !/[nsew]/.test(handle.id));
        const [q, k] = [snapped(stage, i, "query", layer, event), snapped(stage, j, "key", layer, event)];
        if (upright) stage.guides.push(...guideFor("query", q));
        if (sideways) stage.guides.push(...guideFor("key", k));
        [i, j] = [q.value, k.value];
      }
      store.preview({ layers: store.withLayer(layer.id, { node: dragHandle(original, handle.id, i, j, stage.plane) }) });
    },
    end() {
      store.commit(`resize ${layer.name}`);
    },
  };
}

function drawing(stage, from, tool, event) {
  const { store } = stage;
  const point = (at, moved) => {
    const [q, k] = [snapped(stage, at.i, "query", null, moved), snapped(stage, at.j, "key", null, moved)];
    stage.guides = [...guideFor("query", q), ...guideFor("key", k)];
    return { i: q.value, j: k.value };
  };
  const start = point(from, event);
  const layer = { ...makeLayer({ type: "empty" }, { op: event.altKey ? "cut" : store.look.op }), name: "" };
  const before = store.design.layers;
  let node = null;
  return {
    holds: true,
    move(at, moved) {
      const drawn = drawnNode(tool, start, point(at, moved), stage.plane);
      if (Math.hypot(at.x - from.x, at.y - from.y) < CLICK_PX) return;
      node = drawn;
      const shown = { ...makeLayer(node, { op: layer.op }), id: layer.id };
      store.selection = [layer.id];
      store.preview({ layers: [...before, shown] });
    },
    end() {
      if (!node) return;
      const made = store.layer(layer.id);
      store.commit(`draw ${made.name}`);
      store.select([layer.id]);
      store.set({ tool: "select" });
    },
  };
}
