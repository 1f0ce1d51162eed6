// What the mask costs, while it is dragged: the numbers that the browser can count itself at once, those of the
// compiler (descriptor, patterns, predicted time) as soon as it has answered.

import { bytes, clear, figures, h, scaled, whole } from "./dom.js";
import { fieldInput } from "./properties.js";
import { count } from "./fields.js";
import { PALETTES } from "./palette.js";

const REFRESH_MS = 60;
const MOST = { heads: 1 << 20, head_dim: 1 << 12 }; // as in design.py

export function costPanel(store, engine, announce) {
  const big = h("div", { class: "cms-figures" });
  const bar = h("div", { class: "cms-bar-tiles", role: "img" });
  const legend = h("dl", { class: "cms-legend" });
  const table = h("dl", { class: "cms-numbers" });
  const chart = h("canvas", { class: "cms-chart", role: "img" });
  const chartNote = h("p", { class: "cms-hint" });
  let report = null;
  let last = 0;
  let timer = null;

  const render = () => {
    timer = null;
    last = performance.now();
    const { design } = store;
    const totals = engine.tally.totals();
    const stale = !report || report.rev !== design.rev;
    const approx = totals.exact ? "" : "≈ ";
    const stats = report?.ok ? report.stats : null;
    const predicted = report?.ok ? report.predicted : null;
    const late = (value) => h("span", { class: stale ? "cms-stale" : "" }, value);
    const [pairs, pairsUnit] = scaled(totals.visible);
    clear(big,
      figure("Visible pairs", `${approx}${pairs}`, pairsUnit, `${figures(100 * totals.density)} % of the plane`, whole(totals.visible)),
      figure("Wasted work", totals.visible ? `${approx}${totals.waste.toFixed(2)}` : "–", totals.visible ? "×" : "", "tile pairs ÷ visible pairs", whole(totals.visited)),
      figure("Predicted", predicted ? late(figures(predicted.ms)) : "–", predicted ? "ms" : "",
        predicted ? `floor ${figures(predicted.floor_ms)} ms · ${predicted.device}` : report?.ok === false ? "does not compile" : "waiting for the compiler", predicted?.about));
    const share = (count) => (100 * count) / (totals.tiles || 1);
    clear(bar, [["full", totals.full], ["partial", totals.partial], ["empty", totals.empty]].filter(([, count]) => count > 0)
      .map(([kind, count]) => h("span", { class: `cms-kind-${kind}`, style: `flex-grow:${Math.max(share(count), 0.7)}`, title: `${whole(count)} ${kind} tiles` })));
    bar.setAttribute("aria-label", `${whole(totals.full)} full, ${whole(totals.partial)} partial, ${whole(totals.empty)} empty tiles`);
    clear(legend, ["full", "partial", "empty"].map((kind) => h("div", {}, h("dt", {}, h("i", { class: `cms-key cms-kind-${kind}` }), kind), h("dd", {}, whole(totals[kind])))));
    const flops = 4 * totals.visible * store.design.head_dim * store.design.heads;
    const [forward, forwardUnit] = scaled(flops);
    const [backward, backwardUnit] = scaled(2.5 * flops);
    const size = stats ? bytes(stats.descriptor_bytes) : ["–", ""];
    clear(table,
      line("FLOPs forward", `${forward} ${forwardUnit}`), line("FLOPs backward", `${backward} ${backwardUnit}`),
      line("Descriptor", late(`${size[0]} ${size[1]}`)), line("Patterns", late(stats ? whole(stats.patterns) : "–")),
      line("Runs of full tiles", whole(totals.runs)), line("Intervals", late(stats ? whole(stats.intervals) : "–")),
      line("Compile", late(stats ? `${figures(stats.compile_ms)} ms` : "–")));
    drawChart(chart, engine.tally, store.look.dark ? PALETTES.dark : PALETTES.light);
    const imbalance = totals.mean ? totals.heaviest / totals.mean : 1;
    chartNote.textContent = `Tiles a query tile: ${whole(totals.heaviest)} at most, ${figures(totals.mean)} on average (${imbalance.toFixed(2)}×)`;
    chart.setAttribute("aria-label", chartNote.textContent);
  };
  const soon = () => { timer ??= setTimeout(render, Math.max(0, REFRESH_MS - (performance.now() - last))); };
  engine.addEventListener("progress", soon);
  store.on("report", (got) => {
    report = got;
    soon();
    if (got.rev === store.design.rev && !got.draft) announce(got);
  });
  store.on("look", soon);
  new ResizeObserver(soon).observe(chart);
  const shape = ["heads", "head_dim"].map((key) => fieldInput({
    label: key === "heads" ? "batch × heads" : "head dimension", text: `${store.design[key]}`,
    set: (text) => ({ [key]: count(text, { least: 1, most: MOST[key] }) }),
  }, (change) => store.commit("change the shape", change)));
  render();
  return h("div", { class: "cms-cost" }, big, bar, legend, h("h4", {}, "Work per query tile"), chart, chartNote, table, h("div", { class: "cms-fields cms-shape" }, shape));
}

function figure(label, value, unit, note, title) {
  return h("div", { class: "cms-figure", title }, h("span", { class: "cms-figure-label" }, label),
    h("span", { class: "cms-figure-value" }, value, h("small", {}, unit)), h("span", { class: "cms-figure-note" }, note));
}

function line(label, value) {
  return h("div", {}, h("dt", {}, label), h("dd", {}, value));
}

/** Full and partial tiles of each query tile as stacked columns; several query tiles share a column when they must. */
function drawChart(canvas, tally, palette) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (width < 10) return;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  const columns = Math.min(tally.rows, Math.floor(width));
  const most = tally.full.reduce((top, full, row) => Math.max(top, full + tally.partial[row]), 1);
  const step = width / columns;
  const gap = step > 5 ? 1 : 0;
  for (let c = 0; c < columns; c++) {
    const [from, stop] = [Math.floor((c * tally.rows) / columns), Math.max(Math.floor(((c + 1) * tally.rows) / columns), Math.floor((c * tally.rows) / columns) + 1)];
    let [full, partial] = [0, 0];
    for (let row = from; row < stop; row++) {
      if (tally.full[row] + tally.partial[row] > full + partial) [full, partial] = [tally.full[row], tally.partial[row]];
    }
    const fullPx = (full / most) * (height - 1);
    const partialPx = (partial / most) * (height - 1);
    ctx.fillStyle = palette.full;
    ctx.fillRect(c * step, height - fullPx, step - gap + (gap ? 0 : 0.5), fullPx);
    ctx.fillStyle = palette.partialHigh;
    ctx.fillRect(c * step, height - fullPx - partialPx, step - gap + (gap ? 0 : 0.5), partialPx);
  }
}
