// Samples over time on a canvas: one mark a contender and round, warm-up in grey, the drift of the device below.

import { columns, count, rateUnit, span, strength, ticks } from "./throughput_math.js";

const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const STRIP = 12; // height of the drift strip
const FOOT = 40; // below the plot: strip and round numbers

/** Marks differ in shape as well as in colour. */
export const SHAPES = ["circle", "square", "triangle", "diamond", "down", "cross", "plus", "ring"];

export function mark(ctx, shape, x, y, r) {
  ctx.beginPath();
  if (shape === "circle" || shape === "ring") ctx.arc(x, y, r, 0, 2 * Math.PI);
  else if (shape === "square") ctx.rect(x - r * 0.88, y - r * 0.88, 1.76 * r, 1.76 * r);
  else if (shape === "diamond") path(ctx, [[x, y - 1.25 * r], [x + 1.25 * r, y], [x, y + 1.25 * r], [x - 1.25 * r, y]]);
  else if (shape === "triangle") path(ctx, [[x, y - 1.2 * r], [x + 1.15 * r, y + 0.9 * r], [x - 1.15 * r, y + 0.9 * r]]);
  else if (shape === "down") path(ctx, [[x, y + 1.2 * r], [x + 1.15 * r, y - 0.9 * r], [x - 1.15 * r, y - 0.9 * r]]);
  else {
    const turn = shape === "cross" ? Math.SQRT1_2 : 0;
    for (const [dx, dy] of turn ? [[turn, turn], [turn, -turn]] : [[1, 0], [0, 1]]) {
      ctx.moveTo(x - 1.2 * r * dx, y - 1.2 * r * dy);
      ctx.lineTo(x + 1.2 * r * dx, y + 1.2 * r * dy);
    }
  }
  if (["ring", "cross", "plus"].includes(shape)) ctx.stroke();
  else ctx.fill();
}

function path(ctx, points) {
  points.forEach(([x, y], n) => (n ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.closePath();
}

/** A canvas with the size it has on the page, its pixels those of the screen. */
export function surface(canvas) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { ctx, width, height };
}

/** Draws one direction's samples; `styles` gives colour and shape by contender. */
export function drawSamples(canvas, direction, styles, palette, font) {
  const { ctx, width, height } = surface(canvas);
  if (width < 120) return;
  const { loop, entries } = direction;
  const drawn = entries.filter((entry) => entry.series.length > 0);
  const all = drawn.flatMap((entry) => entry.series);
  const [factor, unit] = rateUnit(all);
  const [low, high] = span(all.map((value) => value * factor));
  const plot = { x: LEFT, y: TOP, w: width - LEFT - RIGHT, h: height - TOP - FOOT };
  const at = columns(loop.warmup_rounds, loop.rounds);
  const x = (share) => plot.x + share * plot.w;
  const y = (value) => plot.y + plot.h * (1 - (value - low) / (high - low));

  ctx.font = `11px ${font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  ctx.lineWidth = 1;
  for (const tick of ticks(low, high, 4)) {
    ctx.strokeStyle = palette.grid;
    ctx.beginPath();
    ctx.moveTo(plot.x, Math.round(y(tick)) + 0.5);
    ctx.lineTo(plot.x + plot.w, Math.round(y(tick)) + 0.5);
    ctx.stroke();
    ctx.fillStyle = palette.ruler;
    ctx.fillText(`${tick}`, plot.x - 7, y(tick));
  }
  warmUp(ctx, plot, at, x, palette, loop);
  const r = Math.min(3.4, Math.max(1.6, (plot.w / (at.warmup.length + at.rounds.length)) * 0.3));
  for (const entry of drawn) {
    const { colour, shape } = styles.get(entry.name);
    ctx.strokeStyle = colour;
    ctx.fillStyle = colour;
    ctx.globalAlpha = 0.35;
    ctx.lineWidth = 1;
    ctx.beginPath();
    entry.series.forEach((value, n) => (n ? ctx.lineTo(x(at.rounds[n]), y(value * factor)) : ctx.moveTo(x(at.rounds[n]), y(value * factor))));
    ctx.stroke();
    ctx.globalAlpha = 1;
    ctx.lineWidth = 1.5;
    entry.series.forEach((value, n) => mark(ctx, shape, x(at.rounds[n]), y(value * factor), r));
  }
  driftStrip(ctx, plot, at, x, palette, loop);
  ctx.fillStyle = palette.ruler;
  ctx.textAlign = "left";
  ctx.fillText(`${unit}, one mark a contender and round; ${count(loop.rounds, "round")}`, x(at.edge) + 4, height - 8);
}

/** Rounds before the device was warm: they are counted and left out, and their times are not kept. */
function warmUp(ctx, plot, at, x, palette, loop) {
  if (at.warmup.length === 0) return;
  ctx.fillStyle = palette.rowBand;
  ctx.fillRect(plot.x, plot.y, x(at.edge) - plot.x, plot.h + 6 + STRIP);
  ctx.strokeStyle = palette.ruler;
  ctx.globalAlpha = 0.55;
  for (const share of at.warmup) mark(ctx, "ring", x(share), plot.y + plot.h + 6 + STRIP / 2, 2.4);
  ctx.globalAlpha = 1;
  ctx.save();
  ctx.fillStyle = palette.ruler;
  const room = x(at.edge) - plot.x;
  ctx.textAlign = "center";
  if (room > 70) ctx.fillText("warm-up", plot.x + room / 2, plot.y + 10);
  else if (room > 14) {
    ctx.translate(plot.x + room / 2, plot.y + 30);
    ctx.rotate(-Math.PI / 2);
    ctx.fillText("warm-up", 0, 0);
  }
  ctx.restore();
}

/** One cell a round: slower than usual orange and high, faster blue and low, as usual empty. */
function driftStrip(ctx, plot, at, x, palette, loop) {
  const top = plot.y + plot.h + 6;
  ctx.fillStyle = palette.plot;
  ctx.fillRect(x(at.edge), top, plot.x + plot.w - x(at.edge), STRIP);
  const cell = plot.w / Math.max(at.warmup.length + at.rounds.length, 1);
  loop.drift.forEach((value, n) => {
    const much = strength(value);
    const size = Math.abs(much) * (STRIP / 2);
    ctx.fillStyle = much > 0 ? palette.partialHigh : palette.full;
    ctx.fillRect(x(at.rounds[n]) - cell / 2, much > 0 ? top + STRIP / 2 - size : top + STRIP / 2, Math.max(cell - 0.5, 0.5), size);
  });
  ctx.strokeStyle = palette.gridStrong;
  ctx.strokeRect(Math.round(x(at.edge)) + 0.5, Math.round(top) + 0.5, Math.round(plot.x + plot.w - x(at.edge)) - 1, STRIP - 1);
  ctx.beginPath();
  ctx.moveTo(x(at.edge), top + STRIP / 2);
  ctx.lineTo(plot.x + plot.w, top + STRIP / 2);
  ctx.stroke();
  ctx.fillStyle = palette.ruler;
  ctx.textAlign = "right";
  ctx.fillText("drift", plot.x - 7, top + STRIP / 2);
}
