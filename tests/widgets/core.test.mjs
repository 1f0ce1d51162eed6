import assert from "node:assert/strict";
import { test } from "node:test";

import { dirtyRows, Fold, foldNode, layersOfSpec, makeLayer, specOf } from "../../widgets/frontend/src/layers.js";
import { dragHandle, handlesOf, moveNode } from "../../widgets/frontend/src/geometry.js";
import { FieldError, fieldsOf } from "../../widgets/frontend/src/fields.js";
import { Store } from "../../widgets/frontend/src/store.js";
import { checkNode, depthOf } from "../../widgets/frontend/src/regions.js";
import { complement, difference, intersection, Row, rowOf, union } from "../../widgets/frontend/src/row.js";
import { EMPTY, FULL, PARTIAL, Tally } from "../../widgets/frontend/src/tiles.js";
import { sees, seesThrough } from "./oracle.mjs";

// Reproducible random numbers (mulberry32), so that a failure can be run again.
function randomNumbers(seed) {
  return (limit) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 4294967296) * limit);
  };
}

export const NODES = [
  { type: "full" }, { type: "empty" }, { type: "causal" }, { type: "anticausal" },
  { type: "window", left: 3, right: 0 }, { type: "window", left: null, right: 2 }, { type: "window", left: 0, right: null },
  { type: "band", lo: -4, hi: -1 }, { type: "band", lo: null, hi: 3 }, { type: "band", lo: 2, hi: null },
  { type: "rect", q: [3, 9], k: [2, 30] }, { type: "rect", q: null, k: [4, 7] }, { type: "rect", q: [5, 6], k: null },
  { type: "prefix", n: 5 }, { type: "sink", n: 4 }, { type: "suffix", start: 11 },
  { type: "global_tokens", ranges: [[0, 2], [7, 9]] },
  { type: "documents", lengths: [4, 0, 7, 3] }, { type: "documents", ids: [1, 0, 1, -1, 0, 0, 2, 2, 1, -1] },
  { type: "strided", step: 3, phase: 1 }, { type: "strided", step: 1, phase: 0 },
  { type: "tiles", q_size: 4, k_size: 3, rows: ["0110", "1001", "0000", "1111"] },
  { type: "tree", parents: [-1, 0, 0, 1, 3, 2, 1] },
  { type: "explicit", row_ptr: [0, 2, 2, 3], start: [1, 6, 0], stop: [3, 9, 17] },
  { type: "grid", shape: [4, 4], kind: "disk", radius: 2 }, { type: "grid", shape: [2, 3, 3], kind: "disk", radius: 2 },
  { type: "grid", shape: [3, 5], kind: "box", radii: [1, 2] }, { type: "grid", shape: [2, 2, 4], kind: "box", radii: [0, 1, 1] },
  { type: "grid", shape: [2, 3, 2], kind: "axial", axes: [0, 2] }, { type: "grid", shape: [4, 4], kind: "axial", axes: [0] }, { type: "grid", shape: [3, 2, 2], kind: "causal_time" },
  { type: "and", args: [{ type: "causal" }, { type: "documents", lengths: [5, 5, 4] }, { type: "strided", step: 2, phase: 0 }] },
  { type: "or", args: [{ type: "prefix", n: 2 }, { type: "window", left: 1, right: 1 }] },
  { type: "minus", args: [{ type: "causal" }, { type: "rect", q: [4, 12], k: [3, 6] }] },
  { type: "not", arg: { type: "rect", q: [4, 8], k: [2, 5] } },
  { type: "at", mask: { type: "not", arg: { type: "causal" } }, q: [3, 11], k: [6, 12] },
  { type: "repeat", sizes: [3, 0, 6, 5], mask: { type: "window", left: 1, right: 0 } },
  { type: "repeat", sizes: [4, 5], masks: [{ type: "causal" }, { type: "full" }] },
  { type: "take", mask: { type: "causal" }, q: [3, 1, 2, 9, 0], k: [5, 4, 0, 1, 2, 9, 3] },
  { type: "take", mask: { type: "window", left: 2, right: 2 }, q: null, k: [8, 0, 1, 2] },
  { type: "transposed", mask: { type: "or", args: [{ type: "causal" }, { type: "rect", q: [2, 6], k: [9, 13] }] } },
];

for (const node of NODES) {
  test(`rows of ${JSON.stringify(node)} are those of its definition`, () => {
    checkNode(node);
    for (const [q_len, kv_len, q_start] of [[17, 17, 0], [9, 21, 4]]) {
      const rows = q_start + q_len;
      const fold = new Fold([makeLayer(node)], { q_len, kv_len, q_start });
      for (let i = q_start; i < rows; i++) {
        const got = fold.row(i);
        for (let j = 0; j < kv_len; j++) assert.equal(got.has(j), sees(node, i, j, rows, kv_len), `(${i}, ${j})`);
        const again = got.pairs();
        for (let r = i + 1; r < Math.min(rows, fold.until(i)); r++) assert.deepEqual(fold.row(r).pairs(), again, `until(${i})`);
      }
    }
  });
}

test("a neighbourhood keeps its size at the border", () => {
  const node = { type: "grid", shape: [4, 6], kind: "neighborhood", size: [3, 3], dilation: [1, 1], causal: [false, false] };
  const fold = new Fold([makeLayer(node)], { q_len: 24, kv_len: 24 });
  for (let i = 0; i < 24; i++) assert.equal(fold.row(i).count, 9);
});

test("set operations on rows agree with those on sets of keys", () => {
  const random = randomNumbers(7);
  const anyRow = () => rowOf(Array.from({ length: random(6) }, () => [random(24), random(24)]), 20);
  for (let round = 0; round < 300; round++) {
    const [a, b] = [anyRow(), anyRow()];
    const results = { union: union(a, b, new Row()), meet: intersection(a, b, new Row()), minus: difference(a, b, new Row()), not: complement(a, 20, new Row()) };
    for (let j = 0; j < 20; j++) {
      assert.equal(results.union.has(j), a.has(j) || b.has(j));
      assert.equal(results.meet.has(j), a.has(j) && b.has(j));
      assert.equal(results.minus.has(j), a.has(j) && !b.has(j));
      assert.equal(results.not.has(j), !a.has(j));
    }
    for (const row of Object.values(results)) {
      for (let p = 2; p < row.n; p += 2) assert.ok(row.data[p] > row.data[p - 1], "intervals are disjoint and do not touch");
    }
  }
});

function anyLayers(random, count) {
  const pool = NODES.filter((node) => node.type !== "transposed");
  return Array.from({ length: count }, () => makeLayer(pool[random(pool.length)], {
    op: ["add", "add", "cut", "intersect"][random(4)], visible: random(6) > 0,
  }));
}

test("folded layers, deciding layer and tile counts agree with the dense oracle; a partial update equals a whole one", () => {
  const random = randomNumbers(11);
  const design = { q_len: 19, kv_len: 22, q_start: 2, tile: [4, 8] };
  const rows = design.q_start + design.q_len;
  for (let round = 0; round < 60; round++) {
    const before = anyLayers(random, 1 + random(5));
    const after = before.slice();
    after.splice(random(after.length), random(2), ...anyLayers(random, 1));
    const tally = new Tally();
    tally.update(new Fold(before, design), design, undefined);
    tally.run(Infinity);
    const fold = new Fold(after, design);
    tally.update(fold, design, dirtyRows(before, after, design));
    tally.run(Infinity);
    let visible = 0;
    for (let r = 0; r < tally.rows; r++) {
      for (let c = 0; c < tally.columns; c++) {
        let [seen, exist] = [0, 0];
        for (let i = design.q_start + r * 4; i < Math.min(rows, design.q_start + r * 4 + 4); i++) {
          for (let j = c * 8; j < Math.min(design.kv_len, c * 8 + 8); j++) {
            exist += 1;
            if (seesThrough(after, i, j, rows, design.kv_len)) seen += 1;
          }
        }
        visible += seen;
        assert.equal(tally.classAt(r, c), seen === 0 ? EMPTY : seen === exist ? FULL : PARTIAL);
      }
    }
    assert.equal(tally.totals().visible, visible);
    for (let n = 0; n < 30; n++) {
      const [i, j] = [design.q_start + random(design.q_len), random(design.kv_len)];
      const decider = fold.decider(i, j);
      const seen = fold.row(i).has(j);
      assert.equal(seen, seesThrough(after, i, j, rows, design.kv_len));
      if (seen) assert.equal(decider.op === "add" || decider.op === "intersect", true);
    }
  }
});

test("a spec's layers fold back to the same mask", () => {
  const random = randomNumbers(5);
  const design = { q_len: 18, kv_len: 18, q_start: 0 };
  for (let round = 0; round < 40; round++) {
    const layers = anyLayers(random, 1 + random(5));
    const again = layersOfSpec(JSON.parse(JSON.stringify(specOf(layers))));
    const [one, two] = [new Fold(layers, design), new Fold(again, design)];
    for (let i = 0; i < 18; i++) assert.deepEqual(one.row(i).pairs(), two.row(i).pairs());
  }
});

test("a name holds a group together on the way through a spec", () => {
  const group = makeLayer({ type: "and", args: [{ type: "causal" }, { type: "prefix", n: 3 }] }, { name: "text rows" });
  const again = layersOfSpec(specOf([makeLayer({ type: "sink", n: 2 }), group]));
  assert.deepEqual(again.map((layer) => layer.name), ["Sink", "text rows"]);
  assert.deepEqual(foldNode([makeLayer({ type: "causal" })]), { type: "causal" });
});

const PLANE = { q_len: 16, kv_len: 16, q_start: 0 };
const rowsOf = (layers) => Array.from({ length: 16 }, (_, i) => new Fold(layers, PLANE).row(i).pairs());
const randomLayers = (random, count, ops) =>
  Array.from({ length: count }, () => {
    const [q, k] = [random(15), random(15)];
    return makeLayer({ type: "rect", q: [q, q + 1 + random(16 - q)], k: [k, k + 1 + random(16 - k)] }, { op: ops[random(ops.length)] });
  });

test("two thousand layers in any order of ops are one node that means the same and that Python reads", () => {
  const random = randomNumbers(11);
  for (const [count, ops] of [[40, ["add", "cut"]], [200, ["add", "cut", "intersect"]], [2000, ["add", "add", "cut"]]]) {
    const layers = randomLayers(random, count, ops);
    const node = foldNode(layers);
    assert.ok(depthOf(node) <= 60, `${count} layers nest ${depthOf(node)} deep`);
    assert.deepEqual(rowsOf([makeLayer(node)]), rowsOf(layers));
  }
});

test("a group of layers with one op means what they meant, and so do its parts when it comes apart", () => {
  const random = randomNumbers(5);
  for (const op of ["add", "cut", "intersect"]) {
    const store = new Store({ ...PLANE, layers: [makeLayer({ type: "full" }), ...randomLayers(random, 3, [op])] });
    const before = rowsOf(store.design.layers);
    store.selection = store.design.layers.slice(1).map((layer) => layer.id);
    store.group();
    assert.equal(store.design.layers.length, 2);
    assert.deepEqual(rowsOf(store.design.layers), before);
    store.ungroup();
    assert.equal(store.design.layers.length, 4);
    assert.deepEqual(rowsOf(store.design.layers), before);
  }
});

test("a group that changes the mask says so; a hidden layer stays outside", () => {
  const store = new Store({ ...PLANE, layers: randomLayers(randomNumbers(7), 4, ["add"]) });
  const [bottom, hidden, cut, top] = store.design.layers;
  store.design.layers = [bottom, { ...hidden, visible: false }, { ...cut, op: "cut" }, top];
  const labels = [];
  store.on("design", ({ label }) => labels.push(label));
  store.selection = [hidden.id, cut.id, top.id];
  store.group();
  assert.deepEqual(store.design.layers.map((layer) => [layer.visible, layer.op]), [[true, "add"], [false, "add"], [true, "cut"]]);
  assert.match(labels.at(-1), /group 2 layers: the mask changes/);
});

test("a window or band that is moved shows each pair where it was moved to, however far", () => {
  for (const node of NODES.filter(({ type }) => type === "window" || type === "band")) {
    for (const [di, dj] of [[1, 0], [0, 1], [7, 0], [0, 9], [3, 3], [40, 0]]) {
      const moved = moveNode(node, di, dj, PLANE);
      for (let i = 0; i < 60; i++) for (let j = 0; j < 60; j++) assert.equal(sees(moved, i + di, j + dj), sees(node, i, j));
    }
  }
});

test("whatever is dragged or nudged is a node that Python takes: no negative counts, no empty ranges", () => {
  const random = randomNumbers(17);
  const numbers = (node) => [node.left, node.right, node.n, node.start, ...(node.lengths ?? [])].filter((n) => n !== null && n !== undefined);
  for (let node of NODES.filter((each) => handlesOf(each, PLANE).length || moveNode(each, 0, 0, PLANE))) {
    for (let n = 0; n < 200; n++) {
      const handles = handlesOf(node, PLANE);
      if (handles.length && random(2)) node = dragHandle(node, handles[random(handles.length)].id, random(24) - 4, random(24) - 4, PLANE);
      else node = moveNode(node, random(9) - 4, random(9) - 4, PLANE) ?? node;
      const inner = node.type === "not" ? node.arg : node;
      for (const number of numbers(inner)) assert.ok(number >= 0, JSON.stringify(node));
      for (const [start, stop] of [inner.q, inner.k, ...(inner.ranges ?? [])].filter(Array.isArray).filter((range) => range.length === 2)) {
        assert.ok(start >= 0 && start < stop, JSON.stringify(node));
      }
      if (inner.type === "band" && inner.lo !== null && inner.hi !== null) assert.ok(inner.lo < inner.hi, JSON.stringify(node));
    }
  }
});

test("a field takes what Python takes and says what is wrong with the rest", () => {
  const set = (node, label, text) => fieldsOf(node).find((field) => field.label === label).set(text);
  const window = { type: "window", left: 8, right: 0 };
  assert.deepEqual(set(window, "keys before", "4k"), { type: "window", left: 4096, right: 0 });
  assert.deepEqual(set(window, "keys after", "-1"), { type: "band", lo: -8, hi: 0 });
  const documents = { type: "documents", lengths: [4, 4] };
  assert.deepEqual(set(documents, "lengths", "2x3, 5").lengths, [2, 2, 2, 5]);
  const refused = [
    [window, "keys after", "-9", /hold nothing/], [window, "keys before", "99999999999", /at most 2147483647/],
    [{ type: "band", lo: 0, hi: 4 }, "key − query from", "5", /the end lies before the start/],
    [documents, "lengths", "", /at least one number/], [documents, "lengths", "8x99999999999", /at most 16777216/],
    [{ type: "global_tokens", ranges: [[0, 4]] }, "ranges", " ", /at least one range/],
    [{ type: "prefix", n: 4 }, "keys", "1.5", /no whole number/], [{ type: "prefix", n: 4 }, "keys", "-1", /at least 0/],
    [{ type: "strided", step: 2, phase: 0 }, "step", "0", /at least 1/],
  ];
  for (const [node, label, text, says] of refused) {
    assert.throws(() => set(node, label, text), (error) => error instanceof FieldError && says.test(error.message), `${label} ${text}`);
  }
});

test("groups within groups end before a spec is too deep to read", () => {
  const random = randomNumbers(13);
  const store = new Store({ ...PLANE, layers: randomLayers(random, 1, ["add"]) });
  const refused = [];
  store.on("refused", ({ label }) => refused.push(label));
  for (let n = 0; n < 60; n++) {
    const layers = [...store.design.layers, ...randomLayers(random, 1, [["add", "cut"][n % 2]])];
    store.commit("draw", { layers });
    store.selection = layers.map((layer) => layer.id);
    store.group();
  }
  assert.match(refused[0], /nest at most 40 deep/);
  assert.ok(depthOf(foldNode(store.design.layers)) <= 100);
});

test("a spec that is not understood is refused by name", () => {
  assert.throws(() => checkNode({ type: "causl" }), /unknown type "causl"/);
  assert.throws(() => checkNode({ type: "prefix", n: 3, m: 1 }), /prefix has no field "m"/);
  assert.throws(() => checkNode({ type: "not", arg: { type: "rect", q: null } }), /rect lacks the field "k"/);
  assert.throws(() => layersOfSpec({ cmask: 2, mask: { type: "full" } }), /version 2/);
});

test("exact counts of 32,768 rows with 64 live regions a row fit into a tenth of a second", () => {
  const random = randomNumbers(3);
  const S = 32768;
  const layers = Array.from({ length: 64 }, () => makeLayer({ type: "window", left: 100 + random(S), right: -random(90) }));
  const design = { q_len: S, kv_len: S, q_start: 0, tile: [128, 128] };
  const tally = new Tally();
  tally.update(new Fold(layers, design), design, undefined);
  const start = performance.now();
  tally.run(Infinity);
  const ms = performance.now() - start;
  assert.ok(tally.exact);
  console.log(`64 regions: ${ms.toFixed(1)} ms`);
  assert.ok(ms < 1000, `${ms} ms`); // ten times the target: the machine may be busy
});
