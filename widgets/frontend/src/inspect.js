// One query and its tile row from mask to kernel: the row's intervals, the tile's classes, the runs, partial tiles and
// patterns in the order in which the kernel reads them, and the arrays that hold them.

import { bytes, clear, figures, h, whole } from "./dom.js";
import { PALETTES } from "./palette.js";
import { FULL, PARTIAL } from "./tiles.js";

const KIND = { 0: "empty", [PARTIAL]: "partial", [FULL]: "full" };
const SHOWN = 24;

export function inspectPanel(store, engine, stage, link) {
  const body = h("div", { class: "cms-inspect" });
  let asked = "";
  let answer = null;
  const render = () => {
    const { pinned, panel } = store.look;
    if (panel !== "inspect") return;
    if (!pinned) {
      clear(body, h("p", { class: "cms-hint" }, "Click a pair on the canvas to follow it from the mask to what the kernel reads."));
      return;
    }
    const { design } = store;
    const query = Math.min(Math.max(pinned.i, design.q_start), design.q_start + design.q_len - 1);
    const key = Math.min(pinned.j, design.kv_len - 1);
    const row = engine.fold.row(query).pairs();
    const tileRow = Math.floor((query - design.q_start) / design.tile[0]);
    const column = Math.floor(key / design.tile[1]);
    const tile = stage.picture.tile(engine.fold, design, tileRow, column);
    const seen = row.some(([start, stop]) => key >= start && key < stop);
    const decider = engine.fold.decider(query, key);
    clear(body,
      step(1, "Mask", `Query ${whole(query)} ${seen ? "sees" : "does not see"} key ${whole(key)}: ${decider ? `“${decider.name}” ${word(decider.op)}` : "no layer covers it"}.`),
      step(2, "Intervals", `${row.length} of query ${whole(query)}, ${whole(row.reduce((sum, [a, b]) => sum + b - a, 0))} keys`,
        h("code", { class: "cms-intervals" }, row.length ? row.slice(0, SHOWN).map(([a, b]) => `[${a}, ${b})`).join(" ") + (row.length > SHOWN ? " …" : "") : "none")),
      step(3, "Tiles", `Tile (${tileRow}, ${column}) is ${KIND[tile.kind]}: ${whole(tile.pairs)} visible pairs, ${figures(100 * tile.share)} %.`,
        h("button", { type: "button", class: "cms-button", onclick: () => stage.show(tileSpan(design.q_start, tileRow, design.tile[0]), tileSpan(0, column, design.tile[1])) }, "Look at its tokens")),
      step(4, "Descriptor", answer && !answer.error ? "" : answer?.error ?? "Asking the compiler …", answer && !answer.error ? descriptor(answer, design, store, stage, column) : null));
    const wanted = `${design.rev} ${tileRow}`;
    if (asked !== wanted && !store.base) {
      asked = wanted;
      link.ask("tile", { rev: design.rev, tile_row: tileRow }).then((got) => {
        answer = got;
        render();
      });
    }
  };
  store.on("look", render);
  store.on("report", render);
  return { element: body, render };
}

const tileSpan = (start, n, size) => [start + n * size, start + (n + 1) * size];
const word = (op) => ({ add: "adds it", cut: "cuts it", intersect: "leaves it out" })[op];

function step(n, title, text, ...more) {
  return h("section", { class: "cms-step" }, h("h4", {}, h("b", {}, String(n)), title), text && h("p", {}, text), ...more);
}

function descriptor(answer, design, store, stage, column) {
  const palette = store.look.dark ? PALETTES.dark : PALETTES.light;
  const runs = answer.runs.map(([start, stop]) => h("code", { class: "cms-chip cms-chip-full" }, stop - start === 1 ? `${start}` : `${start}–${stop - 1}`));
  const partial = answer.partial.map(([tile, pattern]) => h("button", {
    type: "button", class: `cms-pattern${tile === column ? " cms-current" : ""}`, title: `kv tile ${tile}, pattern ${pattern}`,
    onclick: () => stage.show(tileSpan(design.q_start, answer.tile_row, design.tile[0]), tileSpan(0, tile, design.tile[1])),
  }, answer.patterns[pattern] ? patternImage(answer.patterns[pattern], design.tile, palette) : null, h("span", {}, `${tile}`), h("small", {}, `#${pattern}`)));
  return h("div", {},
    h("p", {}, `Tile row ${answer.tile_row} is number ${answer.place} in the schedule: ${whole(answer.full_tiles)} full tiles in ${answer.runs_total} runs, ${answer.partial_total} partial.`),
    h("h5", {}, "Runs of full kv tiles"), h("div", { class: "cms-chips" }, runs.length ? runs : "none", answer.runs_total > answer.runs.length ? " …" : null),
    h("h5", {}, "Partial kv tiles and their patterns"), h("div", { class: "cms-patterns" }, partial.length ? partial : "none", answer.partial_total > answer.partial.length ? " …" : null),
    h("h5", {}, "Arrays"),
    h("table", { class: "cms-arrays" }, h("thead", {}, h("tr", {}, h("th", {}, "array"), h("th", {}, "shape"), h("th", {}, "dtype"), h("th", {}, "size"))),
      h("tbody", {}, answer.arrays.map(({ name, shape, dtype, nbytes }) => h("tr", {}, h("td", {}, name), h("td", {}, `(${shape.join(", ")})`), h("td", {}, dtype), h("td", {}, bytes(nbytes).join(" ")))))));
}

/** `hex` is the pattern's rows of bits, least significant bit of each byte first. */
function patternImage(hex, [rows, columns], palette) {
  const canvas = h("canvas", { width: columns, height: rows, "aria-hidden": "true" });
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = palette.waste;
  ctx.fillRect(0, 0, columns, rows);
  ctx.fillStyle = palette.full;
  const perRow = columns / 8;
  for (let r = 0; r < rows; r++) {
    for (let b = 0; b < perRow; b++) {
      const byte = Number.parseInt(hex.substr(2 * (r * perRow + b), 2), 16);
      for (let bit = 0; bit < 8; bit++) if ((byte >> bit) & 1) ctx.fillRect(8 * b + bit, r, 1, 1);
    }
  }
  return canvas;
}
