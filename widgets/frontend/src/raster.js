// Pixels of the plane, straight into an ImageData. One row of pixels looks at one token row when tokens are large, and
// at a few of the rows it covers when they are small; coverage becomes the alpha of the pixel.

const SAMPLES = 3; // token rows looked at for one row of pixels

/** Calls visit(y, count, rows): `count` equal pixel rows from y on, and the queries that stand for them. */
function eachBand(view, ratio, height, visit) {
  const { q_start, q_len } = view.plane;
  const scale = view.sy * ratio;
  const last = q_start + q_len;
  for (let y = 0; y < height; ) {
    const low = view.top + y / scale;
    if (scale >= 1) {
      const query = Math.floor(low + 1e-9);
      const stop = Math.min(height, Math.max(y + 1, Math.round((query + 1 - view.top) * scale)));
      if (query >= q_start && query < last) visit(y, stop - y, [query]);
      y = stop;
      continue;
    }
    const high = view.top + (y + 1) / scale;
    const rows = [];
    for (let s = 0; s < SAMPLES; s++) {
      const query = Math.floor(low + ((s + 0.5) / SAMPLES) * (high - low));
      if (query >= q_start && query < last && rows[rows.length - 1] !== query) rows.push(query);
    }
    if (rows.length) visit(y, 1, rows);
    y += 1;
  }
}

/** Paints visible pairs in one colour (0xBBGGRR), coverage as alpha. */
export function paintMask(image, view, ratio, fold, colour) {
  const { width, height } = image;
  const pixels = new Uint32Array(image.data.buffer);
  pixels.fill(0);
  const scale = view.sx * ratio;
  const cover = new Float32Array(width + 2);
  eachBand(view, ratio, height, (y, count, rows) => {
    cover.fill(0);
    for (const query of rows) {
      const { data, n } = fold.row(query);
      for (let p = 0; p < n; p += 2) {
        let low = (data[p] - view.left) * scale;
        let high = (data[p + 1] - view.left) * scale;
        if (scale >= 1) [low, high] = [Math.round(low), Math.round(high)];
        addCover(cover, Math.max(0, low), Math.min(width, high));
      }
    }
    const base = y * width;
    let level = 0;
    for (let x = 0; x < width; x++) {
      level += cover[x];
      const alpha = Math.min(255, Math.round((level / rows.length) * 255));
      if (alpha > 0) pixels[base + x] = ((alpha << 24) | colour) >>> 0;
    }
    for (let n = 1; n < count; n++) pixels.copyWithin(base + n * width, base, base + width);
  });
}

/** Adds the interval [low, high) in pixels to a difference array whose running sum is the coverage of each pixel. */
function addCover(cover, low, high) {
  if (high <= low) return;
  const [a, b] = [Math.floor(low), Math.floor(high)];
  // A ramp at each end: pixel a is covered from low on, pixel b up to high.
  cover[a] += 1 - (low - a);
  cover[a + 1] += low - a;
  cover[b] -= 1 - (high - b);
  cover[b + 1] -= high - b;
}

/** Paints each pair in the colour of the layer that put it there. `colours[n]` belongs to fold.layers[n]. */
export function paintLayers(image, view, ratio, fold, colours) {
  const { width, height } = image;
  const pixels = new Uint32Array(image.data.buffer);
  pixels.fill(0);
  const scale = view.sx * ratio;
  eachBand(view, ratio, height, (y, count, rows) => {
    const base = y * width;
    fold.paint(rows[rows.length >> 1], (layer, start, stop) => {
      const low = Math.max(0, Math.floor((start - view.left) * scale));
      const high = Math.min(width, Math.max(low + 1, Math.round((stop - view.left) * scale)));
      if (low < high) pixels.fill(layer < 0 ? 0 : ((255 << 24) | colours[layer]) >>> 0, base + low, base + high);
    });
    for (let n = 1; n < count; n++) pixels.copyWithin(base + n * width, base, base + width);
  });
}

/** "#3b6fd4" → 0xd46f3b, the byte order of ImageData on every machine that browsers run on. */
export function pack(hex) {
  const value = Number.parseInt(hex.slice(1), 16);
  return ((value & 255) << 16) | (value & 0xff00) | (value >> 16);
}

export function mix(a, b, share) {
  const channel = (shift) => Math.round(((a >> shift) & 255) * (1 - share) + ((b >> shift) & 255) * share);
  return channel(0) | (channel(8) << 8) | (channel(16) << 16);
}
