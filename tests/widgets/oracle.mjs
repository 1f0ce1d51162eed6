// The dense oracle of the front end's tests: for every spec node a predicate over one (query, key) pair, written from
// the definitions and from nothing else.

import { cellOf } from "../../widgets/frontend/src/grids.js";

const within = (range, at) => range === null || (at >= range[0] && at < range[1]);

const GRID = {
  disk: ({ radius }, a, b) => a.reduce((sum, at, axis) => sum + (at - b[axis]) ** 2, 0) < radius ** 2,
  box: ({ radii }, a, b) => a.every((at, axis) => Math.abs(at - b[axis]) <= radii[axis]),
  axial({ axes }, a, b) {
    const differ = a.flatMap((at, axis) => (at === b[axis] ? [] : [axis]));
    return differ.length === 0 || (differ.length === 1 && axes.includes(differ[0]));
  },
  causal_time: (_, a, b) => b[0] <= a[0],
};

/** Whether query i sees key j of a plane of `rows` × `keys`. */
export function sees(node, i, j, rows, keys) {
  const again = (inner, q = i, k = j) => sees(inner, q, k, rows, keys);
  switch (node.type) {
    case "full": return true;
    case "empty": return false;
    case "causal": return j <= i;
    case "anticausal": return j >= i;
    case "window": return (node.left === null || j >= i - node.left) && (node.right === null || j <= i + node.right);
    case "band": return (node.lo === null || j - i >= node.lo) && (node.hi === null || j - i < node.hi);
    case "rect": return within(node.q, i) && within(node.k, j);
    case "prefix": return j < node.n;
    case "sink": return j < node.n && j <= i;
    case "suffix": return j >= node.start;
    case "global_tokens": return node.ranges.some((range) => within(range, i) || within(range, j));
    case "documents": {
      const ids = node.ids ?? node.lengths.flatMap((length, n) => new Array(length).fill(n));
      return i < ids.length && j < ids.length && ids[i] >= 0 && ids[i] === ids[j];
    }
    case "strided": return (((i - j - node.phase) % node.step) + node.step) % node.step === 0;
    case "tiles": return node.rows[Math.floor(i / node.q_size)]?.[Math.floor(j / node.k_size)] === "1";
    case "tree": {
      for (let at = i; at >= 0 && at < node.parents.length; at = node.parents[at]) if (at === j) return true;
      return false;
    }
    case "explicit": {
      for (let p = node.row_ptr[i]; p < node.row_ptr[i + 1]; p++) if (within([node.start[p], node.stop[p]], j)) return true;
      return false;
    }
    case "grid": {
      const size = node.shape.reduce((product, length) => product * length, 1);
      return i < size && j < size && GRID[node.kind](node, cellOf(i, node.shape), cellOf(j, node.shape));
    }
    case "and": return node.args.every((arg) => again(arg));
    case "or": return node.args.some((arg) => again(arg));
    case "minus": return again(node.args[0]) && !again(node.args[1]);
    case "not": return !again(node.arg);
    case "at":
      return within(node.q, i) && within(node.k, j)
        && sees(node.mask, i - node.q[0], j - node.k[0], node.q[1] - node.q[0], node.k[1] - node.k[0]);
    case "repeat": {
      let start = 0;
      for (const [n, size] of node.sizes.entries()) {
        if (i >= start && i < start + size) {
          return j >= start && j < start + size && sees(node.masks ? node.masks[n] : node.mask, i - start, j - start, size, size);
        }
        start += size;
      }
      return false;
    }
    case "take": {
      const q = node.q ? node.q[i] : i;
      const k = node.k ? node.k[j] : j;
      return q !== undefined && k !== undefined && again(node.mask, q, k);
    }
    case "transposed": return again(node.mask, j, i);
    default: throw new Error(`no oracle for ${node.type}`);
  }
}

/** The fold of layers, pair by pair. */
export function seesThrough(layers, i, j, rows, keys) {
  let seen = false;
  for (const { op, node, visible } of layers) {
    if (!visible) continue;
    const inside = sees(node, i, j, rows, keys);
    if (op === "add") seen = seen || inside;
    else if (op === "cut") seen = seen && !inside;
    else seen = seen && inside;
  }
  return seen;
}
