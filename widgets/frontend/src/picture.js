// Draws the plane: tiles by class, the mask itself, or the layers; rulers; the frame. What can be computed per view is
// kept until the design or the view changes.

import { layerColour } from "./palette.js";
import { mix, pack, paintLayers, paintMask } from "./raster.js";
import { EMPTY, FULL, PARTIAL, tileCounts, TileScanner } from "./tiles.js";
import { short, ticks } from "./view.js";

const TILE_PX = 3; // below this many pixels a tile, cells of several tiles are drawn
const SHAPE_PX = 9; // from this many on, the pairs inside partial tiles are drawn, over hatching
const NO_TILE = { first: 0, last: 0, rows: 0 };

export class Picture {
  constructor() {
    this.cells = document.createElement("canvas");
    this.pixels = document.createElement("canvas");
    this.scanned = new Map(); // tile row → {first, last, counts, rows}, for maps too large to keep whole
    this.hatches = new Map();
  }

  /** Forgets what was computed for the design before. */
  invalidate() {
    this.scanned.clear();
  }

  /** The numbers of one tile row, from the current design. */
  tileRow(fold, design, row) {
    const [rows] = tileCounts(design);
    if (row < 0 || row >= rows) return NO_TILE;
    let found = this.scanned.get(row);
    if (!found) {
      this.scanner = this.scanner?.fold === fold && this.scanner.design === design ? this.scanner : new TileScanner(fold, design);
      const got = this.scanner.scan(row);
      found = { ...got, counts: this.scanner.cells.slice(got.first, got.last), of: this.scanner };
      this.scanned.set(row, found);
    }
    return found;
  }

  /** {kind, pairs, share} of one tile. */
  tile(fold, design, row, column) {
    const found = this.tileRow(fold, design, row);
    const pairs = column >= found.first && column < found.last ? found.counts[column - found.first] : 0;
    const exist = found.of ? found.of.pairsOf(found.rows, column) : 0;
    return { kind: pairs === 0 ? EMPTY : pairs === exist ? FULL : PARTIAL, pairs, share: exist ? pairs / exist : 0 };
  }

  draw(ctx, { view, ratio, fold, tally, design, mode, palette, mismatch, reordered }) {
    const { width, height } = view;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.fillStyle = palette.outside;
    ctx.fillRect(0, 0, width, height);
    const plot = plotBox(view);
    ctx.fillStyle = palette.plot;
    ctx.fillRect(plot.x, plot.y, plot.w, plot.h);
    if (mode === "order") {
      if (reordered?.bytes) this.drawReordered(ctx, view, design, palette, reordered);
    } else if (mode === "tiles") this.drawTiles(ctx, view, ratio, fold, tally, design, palette);
    else this.drawPairs(ctx, view, ratio, fold, mode, palette);
    if (mismatch && mode !== "order") this.drawMismatch(ctx, view, design, palette, mismatch);
    this.drawGrid(ctx, view, design, palette, plot);
    ctx.strokeStyle = palette.frame;
    ctx.lineWidth = 1;
    ctx.strokeRect(Math.round(plot.x) - 0.5, Math.round(plot.y) - 0.5, Math.round(plot.w) + 1, Math.round(plot.h) + 1);
  }

  drawPairs(ctx, view, ratio, fold, mode, palette) {
    const image = this.image(view, ratio);
    if (mode === "layers") paintLayers(image, view, ratio, fold, fold.layers.map((layer) => pack(layerColour(palette, layer.colour ?? 0))));
    else paintMask(image, view, ratio, fold, pack(palette.full));
    this.putImage(ctx, image, view);
  }

  image(view, ratio) {
    const [w, h] = [Math.max(1, Math.round(view.width * ratio)), Math.max(1, Math.round(view.height * ratio))];
    if (this.pixels.width !== w || this.pixels.height !== h || !this.held) {
      this.pixels.width = w;
      this.pixels.height = h;
      this.held = this.pixels.getContext("2d").createImageData(w, h);
    }
    return this.held;
  }

  putImage(ctx, image, view) {
    this.pixels.getContext("2d").putImageData(image, 0, 0);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(this.pixels, 0, 0, view.width, view.height);
  }

  drawTiles(ctx, view, ratio, fold, tally, design, palette) {
    const [qTile, kTile] = design.tile;
    const [w, h] = [kTile * view.sx, qTile * view.sy];
    if (Math.min(w, h) < TILE_PX && tally.group > 1) {
      this.drawOverview(ctx, view, tally, design, palette);
      return;
    }
    const [rows, columns] = tileCounts(design);
    const r0 = Math.max(0, Math.floor((view.top - design.q_start) / qTile));
    const r1 = Math.min(rows, Math.ceil((view.query(view.height) - design.q_start) / qTile));
    const c0 = Math.max(0, Math.floor(view.left / kTile));
    const c1 = Math.min(columns, Math.ceil(view.key(view.width) / kTile));
    if (r1 <= r0 || c1 <= c0) return;
    const shapes = Math.min(w, h) >= SHAPE_PX;
    const ramp = colourRamp(palette);
    const image = this.cellImage(c1 - c0, r1 - r0);
    const hatched = shapes ? new Path2D() : null;
    for (let r = r0; r < r1; r++) {
      const out = (r - r0) * (c1 - c0) - c0;
      if (tally.group === 1 && tally.stale[r]) tally.scanRow(r); // what is in sight is counted first
      const whole = tally.group > 1 ? this.tileRow(fold, design, r) : null;
      for (let c = c0; c < c1; c++) {
        let share = 0; // 1 is full, between 0 and 1 partial
        if (whole === null) share = tally.mapDensity[r * tally.mapColumns + c];
        else if (c >= whole.first && c < whole.last) share = whole.counts[c - whole.first] / whole.of.pairsOf(whole.rows, c);
        if (share === 0) continue;
        let colour = ramp.full;
        if (share < 1) {
          colour = shapes ? ramp.waste : ramp.partial[Math.floor(share * 256)];
          hatched?.rect(view.x(c * kTile), view.y(design.q_start + r * qTile), w, h);
        }
        image.pixels[out + c] = ((255 << 24) | colour) >>> 0;
      }
    }
    const right = Math.min(c1 * kTile, design.kv_len);
    const bottom = Math.min(design.q_start + r1 * qTile, design.q_start + design.q_len);
    ctx.save();
    ctx.beginPath();
    ctx.rect(view.x(c0 * kTile), view.y(design.q_start + r0 * qTile), view.x(right) - view.x(c0 * kTile), view.y(bottom) - view.y(design.q_start + r0 * qTile));
    ctx.clip();
    this.putCells(ctx, image, view.x(c0 * kTile), view.y(design.q_start + r0 * qTile), (c1 - c0) * w, (r1 - r0) * h, false);
    if (shapes) {
      ctx.fillStyle = this.hatch(ctx, palette);
      ctx.fill(hatched);
      const pairs = this.image(view, ratio);
      paintMask(pairs, view, ratio, fold, pack(palette.full));
      this.putImage(ctx, pairs, view);
    }
    ctx.restore();
  }

  drawOverview(ctx, view, tally, design, palette) {
    const image = this.cellImage(tally.mapColumns, tally.mapRows);
    const ramp = colourRamp(palette);
    const plot = pack(palette.plot);
    for (let at = 0; at < image.pixels.length; at++) {
      const [full, partial] = [tally.mapFull[at], tally.mapPartial[at]];
      if (full + partial === 0) {
        image.pixels[at] = 0;
        continue;
      }
      const share = Math.max(0, tally.mapDensity[at] - full) / (partial || 1);
      const tiles = mix(ramp.full, ramp.partial[Math.min(255, Math.floor(share * 256))], partial / (full + partial));
      image.pixels[at] = ((255 << 24) | mix(plot, tiles, 0.25 + 0.75 * Math.min(1, full + partial))) >>> 0;
    }
    const cell = tally.group;
    this.putCells(ctx, image, view.x(0), view.y(design.q_start), tally.mapColumns * cell * design.tile[1] * view.sx, tally.mapRows * cell * design.tile[0] * view.sy, true);
  }

  /** Tiles in another token order: a byte a cell, 0 empty, 255 full, between them partial by density. */
  drawReordered(ctx, view, design, palette, { bytes, rows, columns, group }) {
    const image = this.cellImage(columns, rows);
    const ramp = colourRamp(palette);
    bytes.forEach((value, at) => {
      if (value) image.pixels[at] = ((255 << 24) | (value === 255 ? ramp.full : ramp.partial[value])) >>> 0;
    });
    const [h, w] = [rows * group * design.tile[0], columns * group * design.tile[1]];
    this.putCells(ctx, image, view.x(0), view.y(design.q_start), w * view.sx, h * view.sy, false);
  }

  cellImage(width, height) {
    this.cells.width = width;
    this.cells.height = height;
    const data = this.cells.getContext("2d").createImageData(width, height);
    return { data, pixels: new Uint32Array(data.data.buffer) };
  }

  putCells(ctx, image, x, y, w, h, smooth) {
    this.cells.getContext("2d").putImageData(image.data, 0, 0);
    ctx.imageSmoothingEnabled = smooth;
    ctx.drawImage(this.cells, x, y, w, h);
  }

  hatch(ctx, palette) {
    if (!this.hatches.has(palette)) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 6;
      const at = tile.getContext("2d");
      at.strokeStyle = palette.hatch;
      at.lineWidth = 1;
      at.beginPath();
      for (const shift of [-6, 0, 6]) {
        at.moveTo(shift, 6);
        at.lineTo(shift + 6, 0);
      }
      at.stroke();
      this.hatches.set(palette, ctx.createPattern(tile, "repeat"));
    }
    return this.hatches.get(palette);
  }

  drawMismatch(ctx, view, design, palette, mismatch) {
    const [qTile, kTile] = design.tile;
    ctx.fillStyle = palette.mismatch;
    for (const { row, column, width = 1 } of mismatch) {
      ctx.fillRect(view.x(column * kTile), view.y(design.q_start + row * qTile), Math.max(3, width * kTile * view.sx), Math.max(3, qTile * view.sy));
    }
  }

  drawGrid(ctx, view, design, palette, plot) {
    const lines = (step, colour) => {
      if (step[1] * view.sx < 7 || step[0] * view.sy < 7) return;
      ctx.strokeStyle = colour;
      ctx.lineWidth = 1;
      ctx.beginPath();
      const right = Math.min(design.kv_len, view.key(view.width));
      const bottom = Math.min(design.q_start + design.q_len, view.query(view.height));
      for (let key = Math.max(0, Math.ceil(view.left / step[1]) * step[1]); key <= right; key += step[1]) {
        const x = Math.round(view.x(key)) - 0.5;
        ctx.moveTo(x, Math.max(0, plot.y));
        ctx.lineTo(x, Math.min(view.height, plot.y + plot.h));
      }
      const first = Math.max(0, Math.ceil((view.top - design.q_start) / step[0]) * step[0]);
      for (let query = design.q_start + first; query <= bottom; query += step[0]) {
        const y = Math.round(view.y(query)) - 0.5;
        ctx.moveTo(Math.max(0, plot.x), y);
        ctx.lineTo(Math.min(view.width, plot.x + plot.w), y);
      }
      ctx.stroke();
    };
    lines([1, 1], palette.grid);
    lines(design.tile, palette.gridStrong);
  }

  /** Rulers: keys along the top, queries down the left. */
  drawRulers(ctx, view, gutter, ratio, palette, font) {
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.font = font;
    ctx.fillStyle = palette.ruler;
    ctx.strokeStyle = palette.gridStrong;
    ctx.lineWidth = 1;
    ctx.textBaseline = "middle";
    ctx.beginPath();
    const { kv_len, q_len, q_start } = view.plane;
    ctx.textAlign = "center";
    for (const key of ticks(Math.max(0, view.left), Math.min(kv_len, view.key(view.width)), view.sx, 64)) {
      const x = Math.round(gutter.left + view.x(key)) + 0.5;
      ctx.moveTo(x, gutter.top - 5);
      ctx.lineTo(x, gutter.top);
      ctx.fillText(short(key), Math.max(gutter.left + 4, x), gutter.top - 12);
    }
    ctx.textAlign = "right";
    for (const query of ticks(Math.max(q_start, view.top), Math.min(q_start + q_len, view.query(view.height)), view.sy, 40)) {
      const y = Math.round(gutter.top + view.y(query)) + 0.5;
      ctx.moveTo(gutter.left - 5, y);
      ctx.lineTo(gutter.left, y);
      ctx.fillText(short(query), gutter.left - 8, Math.max(gutter.top + 5, y));
    }
    ctx.stroke();
  }
}

/** The plane on the screen, in CSS pixels. */
export function plotBox(view) {
  const { q_len, kv_len, q_start } = view.plane;
  return { x: view.x(0), y: view.y(q_start), w: kv_len * view.sx, h: q_len * view.sy };
}

const ramps = new Map();
function colourRamp(palette) {
  if (!ramps.has(palette)) {
    const [low, high] = [pack(palette.partialLow), pack(palette.partialHigh)];
    ramps.set(palette, {
      full: pack(palette.full), waste: pack(palette.waste), partial: Array.from({ length: 256 }, (_, n) => mix(low, high, 0.25 + (0.75 * n) / 255)),
    });
  }
  return ramps.get(palette);
}
