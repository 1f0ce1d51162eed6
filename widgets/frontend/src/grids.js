// Regions over a grid of tokens, [h, w] or [t, h, w], flattened row by row: token n is cell (…, y, x), x fastest.
// In most kinds a query sees, on each axis by itself, a list of coordinates: on the last one they make a few intervals.

import { Row } from "./row.js";

/** Cells a flattened token stands for: the inverse of the row-major order. */
export function cellOf(token, shape) {
  const cell = new Array(shape.length);
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    cell[axis] = token % shape[axis];
    token = Math.floor(token / shape[axis]);
  }
  return cell;
}

/** NATTEN's window on one axis: `size` coordinates `dilation` apart, shifted at the border so that none is lost. */
function neighbourhood(at, length, size, dilation, causal) {
  const group = at % dilation; // dilation splits the axis into interleaved groups
  const members = Math.ceil((length - group) / dilation);
  const place = Math.floor(at / dilation);
  const kept = Math.min(size, members);
  let [first, last] = [0, 0];
  if (causal) {
    first = Math.max(0, place - size + 1);
    last = place;
  } else {
    first = Math.min(Math.max(0, place - Math.floor(size / 2)), members - kept);
    last = first + kept - 1;
  }
  return Array.from({ length: last - first + 1 }, (_, n) => group + (first + n) * dilation);
}

const span = (start, stop) => Array.from({ length: Math.max(0, stop - start) }, (_, n) => start + n);

// For each kind: the coordinates that a cell sees on `axis`.
const AXIS = {
  box: ({ shape, radii }) => (cell, axis) => span(Math.max(0, cell[axis] - radii[axis]), Math.min(shape[axis], cell[axis] + radii[axis] + 1)),
  neighborhood: ({ shape, size, dilation, causal }) => {
    const axes = shape.map((length, axis) => Array.from({ length },
      (_, at) => neighbourhood(at, length, size[axis], dilation?.[axis] ?? 1, causal?.[axis] ?? false)));
    return (cell, axis) => axes[axis][cell[axis]];
  },
  causal_time: ({ shape }) => (cell, axis) => span(0, axis === 0 ? cell[0] + 1 : shape[axis]),
};

export function gridRegion(node, plane) {
  const { shape, kind } = node;
  const size = shape.reduce((product, length) => product * length, 1);
  const row = { disk: diskRow, axial: axialRow }[kind]?.(node) ?? productRow(node);
  return {
    from: 0, stop: size, until: (i) => i + 1,
    row(i, out) {
      out.n = 0;
      row(cellOf(i, shape), (start, stop) => out.add(start, Math.min(stop, plane.keys)));
      return out;
    },
  };
}

function productRow(node) {
  const { shape, kind } = node;
  const coordinates = AXIS[kind](node);
  const last = shape.length - 1;
  return (cell, add) => {
    const runs = new Row(8);
    for (const x of coordinates(cell, last)) runs.add(x, x + 1);
    let bases = [0];
    for (let axis = 0; axis < last; axis++) {
      const list = coordinates(cell, axis);
      bases = bases.flatMap((base) => list.map((at) => base * shape[axis] + at));
    }
    for (const base of bases) {
      for (let p = 0; p < runs.n; p += 2) add(base * shape[last] + runs.data[p], base * shape[last] + runs.data[p + 1]);
    }
  };
}

/** Squared distance below radius²: strictly inside, as CLEAR has it. */
function diskRow({ shape, radius }) {
  const width = shape[shape.length - 1];
  const outer = shape.slice(0, -1);
  const reach = Math.ceil(radius);
  return (cell, add) => {
    const x = cell[cell.length - 1];
    const visit = (axis, base, left) => {
      if (left <= 0) return;
      if (axis === outer.length) {
        let half = Math.floor(Math.sqrt(left));
        if (half * half >= left) half -= 1; // dx² < left
        add(base * width + Math.max(0, x - half), base * width + Math.min(width, x + half + 1));
        return;
      }
      const stop = Math.min(outer[axis], cell[axis] + reach + 1);
      for (let at = Math.max(0, cell[axis] - reach); at < stop; at++) {
        visit(axis + 1, base * outer[axis] + at, left - (at - cell[axis]) ** 2);
      }
    };
    visit(0, 0, radius * radius);
  };
}

/** The tokens that differ along one of the axes alone, and the token itself. */
function axialRow({ shape, axes }) {
  const strides = shape.map((_, axis) => shape.slice(axis + 1).reduce((product, length) => product * length, 1));
  const last = shape.length - 1;
  return (cell, add) => {
    const own = cell.reduce((sum, at, axis) => sum + at * strides[axis], 0);
    const base = own - cell[last];
    const pieces = axes.includes(last) ? [[base, base + shape[last]]] : [[own, own + 1]];
    for (const axis of axes) {
      if (axis === last) continue;
      for (let at = 0; at < shape[axis]; at++) {
        const token = own + (at - cell[axis]) * strides[axis];
        pieces.push([token, token + 1]);
      }
    }
    for (const [start, stop] of pieces.sort((a, b) => a[0] - b[0])) add(start, stop);
  };
}
