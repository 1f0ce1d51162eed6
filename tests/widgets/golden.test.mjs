// The same meaning in JavaScript and in Python: every row of the golden vectors that the Python tests read too.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Fold, layersOfSpec, makeLayer } from "../../widgets/frontend/src/layers.js";
import { checkNode } from "../../widgets/frontend/src/regions.js";

const vectors = JSON.parse(readFileSync(new URL("../masks/golden.json", import.meta.url)));
const single = vectors.filter(({ spec }) => !["per_batch", "per_head"].includes(spec.mask.type));

test("there are golden vectors for many kinds of nodes", () => {
  assert.ok(new Set(single.map(({ spec }) => spec.mask.type)).size >= 15);
});

for (const [n, vector] of single.entries()) {
  const { spec, q_len, kv_len, q_start, row_ptr, start, stop } = vector;
  test(`golden ${n}: ${JSON.stringify(spec.mask).slice(0, 90)} ${q_len}×${kv_len} from ${q_start}`, () => {
    checkNode(spec.mask);
    for (const layers of [[makeLayer(spec.mask)], layersOfSpec(spec)]) {
      const fold = new Fold(layers, { q_len, kv_len, q_start });
      for (let i = 0; i < q_len; i++) {
        const expected = [];
        for (let p = row_ptr[i]; p < row_ptr[i + 1]; p++) expected.push([start[p], stop[p]]);
        assert.deepEqual(fold.row(q_start + i).pairs(), expected, `query ${q_start + i}`);
      }
    }
  });
}
