// The results: headline, table with bars up to the floor, samples over time. Redrawn from the whole of `results`.

import { clear, h, keepFocus } from "./dom.js";
import { layerColour, PALETTES } from "./palette.js";
import { count, duration, installCommand, rateUnit, ratioText, significant } from "./throughput_math.js";
import { drawSamples, mark, SHAPES, surface } from "./throughput_plot.js";

const STATUS = { waiting: "waits", failed: "failed", wrong: "wrong result", absent: "not here" };

/** Colour and shape of every contender: fixed by its place among those measured. */
export function stylesOf(names, palette) {
  return new Map(names.map((name, n) => [name, { colour: layerColour(palette, n), shape: SHAPES[n % SHAPES.length] }]));
}

export function resultsPanel(pickCase) {
  const body = h("div", { class: "cms-t-results" });
  const state = { results: {}, dark: false, canvases: [] };
  const paint = () => {
    const palette = state.dark ? PALETTES.dark : PALETTES.light;
    const font = getComputedStyle(body).fontFamily;
    for (const { canvas, direction, styles } of state.canvases) drawSamples(canvas, direction, styles, palette, font);
    body.querySelectorAll("canvas[data-shape]").forEach((canvas) => {
      const { ctx, width, height } = surface(canvas);
      const style = state.styles.get(canvas.dataset.name);
      ctx.fillStyle = ctx.strokeStyle = style.colour;
      ctx.lineWidth = 1.6;
      mark(ctx, style.shape, width / 2, height / 2, 4);
    });
  };
  const render = () => keepFocus(body, () => {
    const { results } = state;
    state.canvases = [];
    if (!results.directions) {
      clear(body, h("p", { class: "cms-hint cms-t-empty" }, "Nothing is measured yet. Start checks every contender against the oracle, then times all of them in interleaved rounds."));
      return;
    }
    const palette = state.dark ? PALETTES.dark : PALETTES.light;
    state.styles = stylesOf([...new Set(results.directions.flatMap((each) => each.entries.map((entry) => entry.name)))], palette);
    clear(body, heading(results, pickCase), results.directions.map((direction) => section(direction, state)));
    requestAnimationFrame(paint);
  });
  new ResizeObserver(() => requestAnimationFrame(paint)).observe(body);
  return {
    element: body,
    show(results) {
      state.results = results;
      render();
    },
    theme(dark) {
      state.dark = dark;
      render();
    },
  };
}

function heading(results, pickCase) {
  const device = results.device.name ?? "a device";
  const versions = Object.entries(results.versions).map(([name, version]) => `${name} ${version}`).join(", ");
  const cases = results.cases.length < 2 ? null : h("select", { class: "cms-input", "aria-label": "Mask of the recorded report", onchange: (event) => pickCase(Number(event.target.value)) },
    results.cases.map((label, n) => h("option", { value: n, selected: n === results.case }, label)));
  const recorded = results.recorded && h("p", { class: "cms-t-recorded" }, h("b", {}, "Recorded"), ` on ${device}, ${results.created.slice(0, 10)}; not measured on this machine. ${versions}`);
  return h("div", { class: "cms-t-heading" }, recorded, cases,
    h("p", { class: "cms-hint", title: versions }, `${results.title}: ${results.shape}`, results.recorded ? "" : ` · ${device}`));
}

function section(direction, state) {
  const { headline, loop, entries, floor_tflops: floor } = direction;
  const [factor, unit] = rateUnit([floor, ...entries.map((entry) => entry.summary?.tflops[1])].filter((value) => value !== null));
  const most = Math.max(floor ?? 0, ...entries.map((entry) => entry.summary?.tflops[2] ?? 0));
  const canvas = loop && entries.some((entry) => entry.series.length) ? h("canvas", { class: "cms-t-samples", role: "img", "aria-label": plotLabel(direction) }) : null;
  if (canvas) state.canvases.push({ canvas, direction, styles: state.styles });
  const floorText = floor ? h("small", {}, `bar to the floor: ${significant(floor * factor)} in ${duration(direction.floor_ms)}`) : "";
  return h("section", { class: "cms-t-direction", "aria-label": direction.direction },
    h("div", { class: `cms-t-headline cms-t-${headline.tone}`, role: "status" }, h("span", { "aria-hidden": "true" }, SIGN[headline.tone]), headline.text),
    h("div", { class: "cms-t-scroll" }, h("table", { class: "cms-t-table" },
      h("thead", {}, h("tr", {}, ["", direction.direction, [`${unit} on visible pairs`, floorText], "median", "× floor", `× ${direction.baseline}`, ["first result", h("small", {}, "plan + first call")], "oracle"]
        .map((content, n) => h("th", { scope: "col", class: n === 2 ? "cms-t-bar-head" : "" }, content)))),
      h("tbody", {}, entries.map((entry) => row(entry, { factor, unit, most, styles: state.styles, baseline: direction.baseline }))))),
    canvas, loop && notes(loop));
}

const SIGN = { faster: "▲", slower: "▼", close: "≈", none: "!", waiting: "…" };

function row(entry, { factor, unit, most, baseline }) {
  const { summary, ratio, check } = entry;
  const glyph = h("canvas", { class: "cms-t-glyph", "data-shape": "", "data-name": entry.name, "aria-hidden": "true" });
  const name = h("th", { scope: "row" }, entry.name, entry.note ? h("small", {}, entry.note) : null);
  if (!summary) {
    const [text, command] = installCommand(entry.reason);
    return h("tr", { class: `cms-t-out cms-t-is-${entry.status}` }, h("td", {}, glyph), name,
      h("td", { colspan: 5 }, h("b", {}, STATUS[entry.status] ?? "checked"), text ? `: ${text} ` : "", command ? h("code", {}, command) : ""), h("td", {}, oracle(check)));
  }
  const share = (value) => `${(100 * value) / most}%`;
  const [low, median, high] = summary.tflops;
  const bar = h("div", { class: "cms-t-bar", role: "img", title: `quartiles ${significant(low * factor)} – ${significant(high * factor)} ${unit}`, "aria-label": `${significant(median * factor)} ${unit}` },
    h("i", { class: entry.ours ? "cms-t-ours" : "", style: `width:${share(median)}` }), h("u", { style: `left:${share(low)};width:${share(high - low)}` }));
  return h("tr", {}, h("td", {}, glyph), name,
    h("td", {}, h("div", { class: "cms-t-rate" }, bar, h("b", {}, significant(median * factor)), h("small", {}, `${significant(low * factor)} – ${significant(high * factor)}`))),
    h("td", { title: `quartiles ${duration(summary.ms[0])} – ${duration(summary.ms[2])}, ${summary.n} rounds` }, duration(summary.ms[1])),
    h("td", {}, summary.floors === null ? "–" : `${significant(summary.floors)}×`),
    h("td", {}, entry.name === baseline ? h("span", { class: "cms-hint" }, "baseline") : ratio ? [ratioText(ratio), h("small", { class: `cms-t-word cms-t-word-${ratio.verdict.split(" ")[0]}` }, ratio.verdict)] : "–"),
    h("td", { title: `first in this process ${duration(entry.startup_ms)}; host ${duration(entry.host_ms)} a call` }, duration(entry.cold_ms ?? entry.first_ms), h("small", {}, entry.plan_ms === null ? "first call" : `${duration(entry.plan_ms)} + ${duration(entry.first_ms)}`)),
    h("td", {}, oracle(check)));
}

function oracle(check) {
  if (!check) return h("span", { class: "cms-hint" }, "–");
  const word = check.passed ? "✓ matches" : "✗ wrong";
  return h("span", { class: check.passed ? "cms-t-good" : "cms-t-bad", title: check.text, tabindex: "0", "aria-label": `${word}: ${check.text}` }, word);
}

function notes(loop) {
  const left = `${count(loop.rounds, "round")} over ${count(loop.buffers, "input set")}; ${count(loop.warmup_rounds, "warm-up round")} (${duration(loop.warmup_ms)}) left out`;
  const parts = [left, loop.stopped && `ended by: ${loop.stopped}`, loop.conditions, ...loop.notes].filter(Boolean);
  return h("p", { class: "cms-hint" }, `${parts.join(" · ")}. `, h("span", {}, "Drift: orange slower, blue faster than the median of the run."),
    loop.spoiled.length ? h("b", { class: "cms-t-bad" }, ` Disturbed: ${loop.spoiled.join(", ")}.`) : null);
}

function plotLabel({ direction, entries, loop }) {
  const said = entries.filter((entry) => entry.summary).map((entry) => `${entry.name} ${significant(entry.summary.tflops[1])} TFLOP/s`);
  return `${direction}: samples of ${loop.rounds} rounds; medians: ${said.join(", ")}`;
}
