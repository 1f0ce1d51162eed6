// The pure functions of the throughput panel.

import assert from "node:assert/strict";
import { test } from "node:test";

import { columns, duration, installCommand, kernelGone, rateUnit, ratioText, reasonAgainst, significant, span, strength, ticks } from "../../widgets/frontend/src/throughput_math.js";

test("rates below 1 TFLOP/s are told in GFLOP/s", () => {
  assert.deepEqual(rateUnit([0.02, 0.4]), [1000, "GFLOP/s"]);
  assert.deepEqual(rateUnit([0.02, 659]), [1, "TFLOP/s"]);
  assert.deepEqual(rateUnit([NaN]), [1000, "GFLOP/s"]);
});

test("a duration has three figures and a unit that suits; what is not known is a dash", () => {
  assert.equal(duration(6.7), "6.70 ms");
  assert.equal(duration(0.0123), "12.3 µs");
  assert.equal(duration(17_500), "17.5 s");
  assert.equal(duration(null), "–");
});

test("significant figures never turn into an exponent", () => {
  for (const value of [1e-6, 0.00123, 0.99, 1.234, 12.34, 659.4, 12345]) assert.match(significant(value), /^\d+(\.\d+)?$/);
  assert.equal(significant(0), "0");
});

test("ticks are round, lie in the range and are no more than asked for, give or take one", () => {
  for (const [low, high] of [[0, 1], [312, 689], [0.0021, 0.0187], [17.2, 17.9]]) {
    const found = ticks(low, high, 4);
    assert.ok(found.length >= 2 && found.length <= 5, `${low} … ${high}: ${found}`);
    assert.ok(found.every((tick) => tick >= low - 1e-9 && tick <= high + 1e-9));
    const step = found[1] - found[0];
    const digit = Math.round(step / 10 ** Math.floor(Math.log10(step) + 1e-9));
    assert.ok([1, 2, 5].includes(digit), `${step}`);
  }
  assert.deepEqual(ticks(3, 3, 4), [3]);
});

test("a plot's range holds every sample and never falls below 0", () => {
  const [low, high] = span([5, 5.2, 4.9]);
  assert.ok(low < 4.9 && high > 5.2);
  assert.equal(span([0.1, 90])[0], 0);
  assert.deepEqual(span([]), [0, 1]);
});

test("warm-up rounds stand before the timed ones, all in [0, 1]", () => {
  const { warmup, rounds, edge } = columns(2, 6);
  assert.equal(edge, 0.25);
  assert.ok(warmup.every((x) => x > 0 && x < edge) && rounds.every((x) => x > edge && x < 1));
  assert.equal(rounds.length, 6);
});

test("drift is nothing below half a percent and all at ten", () => {
  assert.equal(strength(0.004), 0);
  assert.equal(strength(0.5), 1);
  assert.equal(strength(-0.5), -1);
  assert.ok(strength(0.05) > 0 && strength(0.05) < 1);
});

test("a ratio of one round has no interval", () => {
  assert.equal(ratioText({ median: 1.234, low: 1.234, high: 1.234, n: 1 }), "1.234×");
  assert.equal(ratioText({ median: 1.234, low: 1.2, high: 1.3, n: 12 }), "1.234× [1.200, 1.300]");
});

test("both directions need both", () => {
  const contender = { absent: { cpu: { forward: null, backward: "no backward pass" } } };
  assert.equal(reasonAgainst(contender, "cpu", "forward"), "");
  assert.equal(reasonAgainst(contender, "cpu", "both"), "no backward pass");
  assert.equal(reasonAgainst({ absent: {} }, "cuda:0", "forward"), "");
});

test("the command that installs what is missing is found in the reason", () => {
  assert.deepEqual(installCommand("needs the package flash-attn-4 (pip install --pre flash-attn-4)"), ["needs the package flash-attn-4", "pip install --pre flash-attn-4"]);
  assert.deepEqual(installCommand("needs PyTorch: pip install 'cmask-lab[gpu]'"), ["needs PyTorch:", "pip install 'cmask-lab[gpu]'"]);
  assert.deepEqual(installCommand("needs a CUDA GPU"), ["needs a CUDA GPU", ""]);
});

test("a kernel is gone when it is disposed, dead, restarting or cut off; unknown front ends say nothing", () => {
  assert.equal(kernelGone(undefined), false);
  assert.equal(kernelGone({ status: "busy", connectionStatus: "connected" }), false);
  assert.equal(kernelGone({ status: "restarting", connectionStatus: "connected" }), true);
  assert.equal(kernelGone({ status: "idle", connectionStatus: "disconnected" }), true);
  assert.equal(kernelGone({ isDisposed: true, status: "idle" }), true);
});
