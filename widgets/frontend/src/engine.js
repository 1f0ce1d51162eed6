// Keeps the fold and the tally up to the design, a few milliseconds of work a frame, latest design first.

import { dirtyRows, Fold } from "./layers.js";
import { tileCounts, Tally } from "./tiles.js";

const SLICE_MS = 9;

export class Engine extends EventTarget {
  constructor(store) {
    super();
    this.store = store;
    this.tally = new Tally();
    this.before = null;
    this.update();
    store.on("design", () => this.update());
  }

  update() {
    const { design } = this.store;
    const { before } = this;
    this.fold = new Fold(design.layers, design);
    const dirty = before && before.q_len === design.q_len && before.kv_len === design.kv_len && before.q_start === design.q_start
      ? dirtyRows(before.layers, design.layers, design) : undefined;
    this.tally.update(this.fold, design, dirty);
    this.before = design;
    this.compared = null;
    this.dispatchEvent(new Event("fold"));
    this.schedule();
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      const done = this.tally.run(performance.now() + SLICE_MS);
      this.dispatchEvent(new Event("progress"));
      if (done) this.check();
      else this.schedule();
    });
  }

  /** What the compiler found for the design on screen: {rev, full, partial (Int32Array a tile row), classes}. */
  compare(compiled) {
    this.compiled = compiled;
    this.check();
  }

  /** Sets `mismatch` to the tiles in which compiler and browser differ: there must be none. */
  check() {
    const { compiled, tally } = this;
    if (!compiled || compiled.rev !== this.store.design.rev || !tally.exact || this.compared === compiled) return;
    this.compared = compiled;
    const found = [];
    const [rows, columns] = tileCounts(this.store.design);
    for (let row = 0; row < rows; row++) {
      if (compiled.classes && tally.group === 1) {
        for (let column = 0; column < columns; column++) {
          if (compiled.classes[row * columns + column] !== tally.classAt(row, column)) found.push({ row, column });
        }
      } else if (compiled.full[row] !== tally.full[row] || compiled.partial[row] !== tally.partial[row]) {
        found.push({ row, column: 0, width: columns });
      }
    }
    this.mismatch = found.length ? found : null;
    this.dispatchEvent(new Event("checked"));
  }

  dispose() {
    cancelAnimationFrame(this.frame);
  }
}
