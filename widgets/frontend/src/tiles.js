// Tile classes and counts. One pass over a query tile's intervals counts the visible pairs of each of its tiles;
// a tile with all its pairs visible is full, with none empty, any other partial. Of a ragged last tile the pairs that
// exist count.

export const EMPTY = 0;
export const PARTIAL = 1;
export const FULL = 2;
const MAP_LIMIT = 512; // cells a side of the map that is kept: what a view can show

export function tileCounts({ q_len, kv_len, tile }) {
  return [Math.ceil(q_len / tile[0]), Math.ceil(kv_len / tile[1])];
}

/** Counts tile rows one at a time. */
export class TileScanner {
  constructor(fold, design) {
    this.fold = fold;
    this.design = design;
    this.columns = tileCounts(design)[1];
    this.edges = new Int32Array(this.columns + 1); // pairs of the first and last tile of each interval
    this.steps = new Int32Array(this.columns + 1); // rows that cover whole tiles, as differences
    this.cells = new Int32Array(this.columns); // visible pairs of each tile of the row scanned last
    this.lastWidth = design.kv_len - (this.columns - 1) * design.tile[1];
  }

  /** Pairs that exist in tile `column` of a tile row of `rows` queries. */
  pairsOf(rows, column) {
    return rows * (column === this.columns - 1 ? this.lastWidth : this.design.tile[1]);
  }

  /** Fills `cells` for one tile row between `first` and `last`; returns its numbers. */
  scan(tileRow) {
    const { fold, edges, steps, cells } = this;
    const { q_len, q_start, tile } = this.design;
    const [qTile, kTile] = tile;
    const start = q_start + tileRow * qTile;
    const stop = Math.min(start + qTile, q_start + q_len);
    fold.narrow(start, stop);
    let [first, last, visible] = [this.columns, 0, 0];
    for (let i = start; i < stop; ) {
      const weight = Math.min(stop, fold.until(i)) - i;
      const row = fold.row(i);
      const { data, n } = row;
      for (let p = 0; p < n; p += 2) {
        const [low, high] = [data[p], data[p + 1]];
        const left = Math.floor(low / kTile);
        const right = Math.floor((high - 1) / kTile);
        visible += weight * (high - low);
        if (left === right) edges[left] += weight * (high - low);
        else {
          edges[left] += weight * ((left + 1) * kTile - low);
          edges[right] += weight * (high - right * kTile);
          steps[left + 1] += weight;
          steps[right] -= weight;
        }
      }
      if (n > 0) {
        first = Math.min(first, Math.floor(data[0] / kTile));
        last = Math.max(last, Math.floor((data[n - 1] - 1) / kTile) + 1);
      }
      i += weight;
    }
    const rows = stop - start;
    let [full, partial, runs, covered] = [0, 0, 0, 0];
    let inRun = false;
    for (let c = first; c < last; c++) {
      covered += steps[c];
      const count = edges[c] + covered * kTile;
      cells[c] = count;
      edges[c] = 0;
      steps[c] = 0;
      if (count === this.pairsOf(rows, c)) {
        full += 1;
        if (!inRun) runs += 1;
        inRun = true;
      } else {
        if (count > 0) partial += 1;
        inRun = false;
      }
    }
    if (last <= this.columns) steps[last] = 0;
    return { first: Math.min(first, last), last, visible, full, partial, runs, rows };
  }
}

/** Numbers of the whole plane, kept up to date tile row by tile row in slices of a few milliseconds. */
export class Tally {
  constructor() {
    this.shape = "";
  }

  /** Takes a new design. Rows outside `dirty` ([from, stop) queries, null for none, undefined for all) stay as they are. */
  update(fold, design, dirty) {
    const [rows, columns] = tileCounts(design);
    const shape = [design.q_len, design.kv_len, design.q_start, ...design.tile].join();
    if (shape !== this.shape) {
      this.shape = shape;
      this.rows = rows;
      this.columns = columns;
      this.full = new Int32Array(rows);
      this.partial = new Int32Array(rows);
      this.runs = new Int32Array(rows);
      this.visible = new Float64Array(rows);
      this.group = Math.max(1, Math.ceil(Math.max(rows, columns) / MAP_LIMIT)); // tiles a side of one map cell
      this.mapRows = Math.ceil(rows / this.group);
      this.mapColumns = Math.ceil(columns / this.group);
      this.mapFull = new Float32Array(this.mapRows * this.mapColumns); // share of the cell's tiles that are full
      this.mapPartial = new Float32Array(this.mapRows * this.mapColumns);
      this.mapDensity = new Float64Array(this.mapRows * this.mapColumns); // 1 exactly where all are full
      this.stale = new Uint8Array(rows).fill(1);
      this.pending = rows;
      dirty = undefined;
    }
    this.scanner = new TileScanner(fold, design);
    if (dirty === null) return;
    const [from, stop] = dirty ?? [design.q_start, design.q_start + design.q_len];
    const first = Math.floor((from - design.q_start) / design.tile[0]);
    const last = Math.ceil((stop - design.q_start) / design.tile[0]);
    for (let row = first; row < last; row++) {
      if (!this.stale[row]) this.pending += 1;
      this.stale[row] = 1;
    }
    this.first = first;
    // Rows far apart first: a picture and an estimate of everything soon, and both exact at the end.
    this.stride = 1 << Math.max(0, Math.floor(Math.log2(this.rows / 256)) + 1);
    this.phase = 0;
    this.next = 0;
  }

  get exact() {
    return this.pending === 0;
  }

  /** Works until `deadline` (ms, performance.now); true when nothing is left to do. */
  run(deadline) {
    while (this.pending > 0) {
      if (this.next >= this.rows) {
        this.phase += 1;
        this.next = bitReversed(this.phase, this.stride);
        if (this.phase >= this.stride) [this.phase, this.next] = [0, 0];
        continue;
      }
      if (this.stale[this.next]) {
        this.scanRow(this.next);
        if (performance.now() >= deadline) break;
      }
      this.next += this.stride;
    }
    return this.exact;
  }

  scanRow(row) {
    const { scanner, group, mapColumns } = this;
    const got = scanner.scan(row);
    this.full[row] = got.full;
    this.partial[row] = got.partial;
    this.visible[row] = got.visible;
    this.runs[row] = got.runs;
    this.stale[row] = 0;
    this.pending -= 1;
    // A cell of several tile rows shows the one scanned last: they look alike at the size of a pixel.
    const base = Math.floor(row / group) * mapColumns;
    const { cells } = scanner;
    if (group === 1) {
      for (let c = 0; c < mapColumns; c++) {
        const count = c >= got.first && c < got.last ? cells[c] : 0;
        const whole = scanner.pairsOf(got.rows, c);
        this.mapFull[base + c] = count === whole ? 1 : 0;
        this.mapPartial[base + c] = count > 0 && count < whole ? 1 : 0;
        this.mapDensity[base + c] = count / whole;
      }
      return;
    }
    for (let m = 0; m < mapColumns; m++) {
      let [full, partial, share] = [0, 0, 0];
      const stop = Math.min((m + 1) * group, got.last);
      for (let c = Math.max(m * group, got.first); c < stop; c++) {
        const whole = scanner.pairsOf(got.rows, c);
        if (cells[c] === whole) full += 1;
        else if (cells[c] > 0) partial += 1;
        share += cells[c] / whole;
      }
      const width = Math.min((m + 1) * group, this.columns) - m * group;
      this.mapFull[base + m] = full / width;
      this.mapPartial[base + m] = partial / width;
      this.mapDensity[base + m] = share / width;
    }
  }

  /** Class of a tile, where the map has one cell a tile. */
  classAt(row, column) {
    const cell = row * this.mapColumns + column;
    return this.mapFull[cell] ? FULL : this.mapPartial[cell] ? PARTIAL : EMPTY;
  }

  /** The numbers so far; while rows are stale `exact` is false and they hold the last known state of those rows. */
  totals() {
    const { design } = this.scanner;
    const [q, k] = design.tile;
    let [full, partial, visible, runs, heaviest] = [0, 0, 0, 0, 0];
    for (let row = 0; row < this.rows; row++) {
      full += this.full[row];
      partial += this.partial[row];
      visible += this.visible[row];
      runs += this.runs[row];
      heaviest = Math.max(heaviest, this.full[row] + this.partial[row]);
    }
    const tiles = this.rows * this.columns;
    const visited = (full + partial) * q * k;
    return {
      visible, full, partial, empty: tiles - full - partial, tiles, runs, visited, heaviest,
      density: visible / (design.q_len * design.kv_len || 1), waste: visible ? visited / visible : 1,
      mean: (full + partial) / (this.rows || 1), exact: this.exact,
    };
  }
}

function bitReversed(value, size) {
  let reversed = 0;
  for (let bit = 1; bit < size; bit <<= 1) {
    reversed = (reversed << 1) | (value & 1);
    value >>= 1;
  }
  return reversed;
}
