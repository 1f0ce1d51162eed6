// The line below the canvas: what lies under the crosshair, and who decided it.

import { clear, figures, h, whole } from "./dom.js";
import { layerColour, PALETTES } from "./palette.js";
import { FULL, PARTIAL } from "./tiles.js";

const SHOWN = 3;
const WORD = { add: "added by", cut: "cut by", intersect: "left out by" };

export function hoverBar(store, engine, stage) {
  const bar = h("div", { class: "cms-status" });
  const rest = () => clear(bar, h("span", { class: "cms-hint" }, "Hover to read a pair · click to pin it · double-click for its tile · Ctrl + wheel zooms · ? for all keys"));
  let frame = null;
  const render = () => {
    frame = null;
    const { hover } = stage;
    if (!hover) {
      rest();
      return;
    }
    const { design } = store;
    const { i, j } = hover;
    const row = engine.fold.row(i);
    const seen = row.has(j);
    const intervals = row.pairs();
    const keys = row.count;
    const layer = engine.fold.decider(i, j);
    const tileRow = Math.floor((i - design.q_start) / design.tile[0]);
    const column = Math.floor(j / design.tile[1]);
    const tile = stage.picture.tile(engine.fold, design, tileRow, column);
    const kind = tile.kind === FULL ? "full" : tile.kind === PARTIAL ? "partial" : "empty";
    const palette = store.look.dark ? PALETTES.dark : PALETTES.light;
    const near = intervals.findIndex(([, stop]) => stop > j);
    const from = Math.max(0, Math.min(near < 0 ? intervals.length : near - 1, intervals.length - SHOWN));
    clear(bar,
      h("span", {}, "query ", h("b", {}, whole(i)), " key ", h("b", {}, whole(j))),
      h("span", { class: seen ? "cms-seen" : "cms-unseen" }, seen ? "visible" : "not visible"),
      h("span", {}, layer ? [WORD[layer.op === "intersect" && seen ? "add" : layer.op], " ", h("i", { class: "cms-swatch", style: `background:${layerColour(palette, layer.colour)}` }), layer.name] : "no layer"),
      h("span", {}, h("i", { class: `cms-key cms-kind-${kind}` }), `tile (${tileRow}, ${column}) ${kind}${tile.kind === PARTIAL ? `, ${figures(100 * tile.share)} %` : ""}`),
      h("span", { class: "cms-row-intervals" }, `row: ${whole(keys)} keys in ${intervals.length} `,
        intervals.slice(from, from + SHOWN).map(([a, b]) => `[${a}, ${b})`).join(" "), intervals.length > SHOWN ? " …" : ""));
  };
  store.on("hover", () => { frame ??= requestAnimationFrame(render); });
  engine.addEventListener("fold", () => { frame ??= requestAnimationFrame(render); });
  rest();
  return bar;
}
