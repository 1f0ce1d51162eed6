from __future__ import annotations

import copy
import functools
import gc
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch
from cmask_lab.kernels import held_masks

import cmask_lab as cm
from cmask_lab.attention import attention, choose_backend
from tests.kernels.oracle import Case, compare, dense, tensors

# PyTorch 2.11 warns of its own use of TorchScript where it loads the compiler.
pytestmark = pytest.mark.filterwarnings(r"ignore:.torch\.jit\.\w+. is deprecated:DeprecationWarning")

MASK = cm.causal() - cm.rect(q=(20, 25))
CAUSAL = cm.causal()


def inputs(compiled, case=Case(heads=4, kv_heads=2, dtype=torch.float64)):  # noqa: B008 - frozen
    return tensors(compiled, case)


def named(data):
    options = data.options
    softmax = options.activation == "softmax"
    return {
        "scale": options.scale,
        "activation": options.activation,
        "softcap": options.softcap or None,
        "sinks": options.sinks,
        "normalizer": None if softmax else options.normalizer,
        "return_lse": softmax,
    }


def results(function, data, mask, backend="auto"):
    """Results and gradients through autograd, by the names of the oracle."""
    leaves = {name: getattr(data, name).clone().requires_grad_() for name in ("q", "k", "v")}
    arguments = named(data)
    if arguments["sinks"] is not None:
        leaves["sinks"] = arguments["sinks"] = arguments["sinks"].clone().requires_grad_()
    value = function(leaves["q"], leaves["k"], leaves["v"], mask, backend=backend, **arguments)
    out, lse = value if arguments["return_lse"] else (value, None)
    grads = [data.grad_out]
    if data.grad_lse is not None:
        grads.append(torch.where(lse > float("-inf"), data.grad_lse, 0.0).to(lse.dtype))
    gradients = torch.autograd.grad([out, lse][: len(grads)], list(leaves.values()), grads)
    found = {"out": out.detach()} | ({} if lse is None else {"lse": lse.detach()})
    return found | {f"grad_{name}": grad for name, grad in zip(leaves, gradients, strict=True)}


CASES = [
    Case(heads=4, kv_heads=2, dtype=torch.float64),
    Case(heads=2, head_dim=24, value_dim=8, sinks=True, softcap=2.0),
    Case(activation="silu", normalizer=60.0),
    Case(dtype=torch.bfloat16, sinks=True),
]


@pytest.mark.parametrize("backend", ["auto", "cpu", "reference"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients(case, backend):
    compiled = cm.compile(MASK, 60)
    data = inputs(compiled, case)
    compare(results(attention, data, MASK, backend), data, dense(compiled))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_one_compiled_graph(case):
    compiled = cm.compile(MASK, 60)
    data = inputs(compiled, case)
    whole = torch.compile(attention, fullgraph=True, backend="aot_eager", dynamic=False)
    compare(results(whole, data, MASK), data, dense(compiled))


def counted_graphs():
    """A compiler for ``torch.compile`` that keeps the graphs it was given."""
    graphs = []

    def compiler(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    return compiler, graphs


def test_a_compiled_graph_serves_all_lengths():
    compiler, graphs = counted_graphs()
    model = torch.compile(lambda q, k, v: attention(q, k, v, MASK), fullgraph=True, backend=compiler, dynamic=True)
    for length in (60, 50, 47, 33):
        data = inputs(cm.compile(MASK, length))
        torch.testing.assert_close(model(data.q, data.k, data.v), attention(data.q, data.k, data.v, MASK))
    assert len(graphs) == 1


def test_a_compiled_graph_serves_other_masks():
    """A second mask is traced once more, as one whose number may be any; then the kind of mask alone matters."""
    compiler, graphs = counted_graphs()
    model = torch.compile(lambda *inputs: attention(*inputs), fullgraph=True, backend=compiler)
    data = inputs(cm.compile(MASK, 60))
    q = data.q.clone().requires_grad_()

    def agrees(mask):
        results = [function(q, data.k, data.v, mask) for function in (model, attention)]
        gradients = [torch.autograd.grad(result.square().sum(), q)[0] for result in results]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*gradients)

    for length in range(10, 20):  # more than PyTorch would trace anew
        agrees(cm.causal() & cm.documents([length, 60 - length]))
    assert len(graphs) == 2
    for left in range(10):
        agrees(cm.compile(cm.window(left, 3), 60))
    assert len(graphs) == 3
    rng = np.random.default_rng(0)
    for _ in range(10):
        agrees(cm.from_dense(rng.random((60, 60)) < 0.3))
    assert len(graphs) == 4


def test_a_module_and_its_mask_are_one_graph():
    class Layer(torch.nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.mask = mask

        def forward(self, q):
            return attention(q, q, q, self.mask)

    compiler, graphs = counted_graphs()
    layer = Layer(cm.window(3))
    model, q = torch.compile(layer, fullgraph=True, backend=compiler), torch.randn(1, 2, 60, 16)
    for _ in range(2):
        torch.testing.assert_close(model(q), attention(q, q, q, cm.window(3)))
    assert len(graphs) == 1
    layer.mask = cm.window(5)
    torch.testing.assert_close(model(q), attention(q, q, q, cm.window(5)))


def test_a_mask_made_while_tracing_is_refused_and_named():
    model = torch.compile(lambda q: attention(q, q, q, cm.window(3)), fullgraph=True, backend="eager")
    with pytest.raises(torch._dynamo.exc.Unsupported):
        model(zeros(1, 1, 8, 16))


def test_the_tracer_is_not_imported_before_it_is_needed():
    code = "import sys, cmask_lab.attention; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("activation", ["softmax", "silu"])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_registration(activation, with_sinks):
    if activation == "silu" and with_sinks:
        with pytest.raises(ValueError, match="sinks are logits of a softmax"):
            attention(*[torch.zeros(1, 1, 4, 8)] * 3, MASK, activation="silu", normalizer=1.0, sinks=torch.zeros(1))
        return
    data = inputs(cm.compile(MASK, 60), Case(heads=4, kv_heads=2, sinks=with_sinks))
    leaves = [None if t is None else t.clone().requires_grad_() for t in (data.q, data.k, data.v, data.options.sinks)]
    numbers = (MASK.number, "auto", activation, 0.3, 0.0, 1.0, True, False)
    torch.library.opcheck(torch.ops.cmask_lab.attention.default, (*leaves, *numbers))


def test_a_token_order_is_applied_inside():
    shuffled = np.random.default_rng(3).permutation(60)
    data = inputs(cm.compile(MASK, 60), CASES[1])
    compare(results(attention, data, cm.compile(MASK, 60, order=shuffled)), data, dense(cm.compile(MASK, 60)))


def test_later_queries_need_a_compiled_mask():
    data = inputs(cm.compile(cm.causal(), 4, 60, q_start=56))
    out = attention(data.q, data.k, data.v, cm.compile(cm.causal(), 4, 60, q_start=56))
    alone = attention(data.q, data.k, data.v, cm.causal())
    torch.testing.assert_close(alone[:, :, 0], data.v.repeat_interleave(2, 1)[:, :, 0])
    assert not torch.allclose(out[:, :, 0], alone[:, :, 0])


def test_only_the_gradients_asked_for():
    data = inputs(cm.compile(MASK, 60))
    k = data.k.clone().requires_grad_()
    attention(data.q, k, data.v, MASK).sum().backward()
    assert k.grad is not None
    with torch.no_grad():
        assert not attention(data.q, k, data.v, MASK).requires_grad


def test_the_mask_may_go_before_backward():
    data = inputs(cm.compile(MASK, 60))
    q = data.q.clone().requires_grad_()
    out = attention(q, data.k, data.v, cm.compile(cm.window(11), 60))
    held_masks._recent.clear()
    gc.collect()
    out.sum().backward()
    assert torch.isfinite(q.grad).all()


def test_masks_that_nobody_holds_are_let_go():
    data = inputs(cm.compile(MASK, 60))
    first = cm.window(30)
    attention(data.q, data.k, data.v, first)
    number, gone = first.number, weakref.ref(first)
    del first
    for left in range(31, 32 + held_masks.RECENT_MASKS):
        attention(data.q[:, :, :1], data.k[:, :, :1], data.v[:, :, :1], cm.window(left))
    gc.collect()
    assert gone() is None
    with pytest.raises(RuntimeError, match=f"mask number {number} no longer exists; keep a reference"):
        held_masks.held(number)


@pytest.mark.parametrize("compiled", [False, True], ids=["mask", "compiled mask"])
def test_masks_are_let_go_without_pythons_collector(compiled):
    """It counts objects, and a few masks may have gigabytes: what nobody holds must go at once."""
    data = inputs(cm.compile(MASK, 60))
    q = data.q.clone().requires_grad_()
    alive = []
    gc.disable()
    try:
        for left in range(3 * held_masks.RECENT_MASKS):
            mask = cm.window(left, 5)
            used = cm.compile(mask, 60) if compiled else mask
            attention(q, data.k, data.v, used).sum().backward()
            alive += [weakref.ref(mask), weakref.ref(used)]
            del mask, used
        masks = {id(ref()) for ref in alive if ref() is not None}
    finally:
        gc.enable()
    assert len(masks) <= 2 * held_masks.RECENT_MASKS + 2


def test_a_used_mask_travels_to_other_processes():
    data = inputs(cm.compile(MASK, 60))
    mask = cm.window(7)
    wanted = attention(data.q, data.k, data.v, mask)
    for twin in (pickle.loads(pickle.dumps(mask)), copy.deepcopy(mask), copy.copy(mask)):
        assert twin == mask
        assert torch.equal(attention(data.q, data.k, data.v, twin), wanted)


def test_equal_masks_are_compiled_once():
    data = inputs(cm.compile(MASK, 60))
    attention(data.q, data.k, data.v, cm.window(29, 2))
    another = cm.window(29, 2)
    before = held_masks.held(another.number).compiled(60, 60)
    attention(data.q, data.k, data.v, cm.window(29, 2))
    assert held_masks.held(another.number).compiled(60, 60) is before


def test_a_mask_outlives_its_equals():
    """When one of two equal masks is gone, the other still works, forward and backward."""
    data = inputs(cm.compile(MASK, 60))
    first, q = cm.window(28, 3), data.q.clone().requires_grad_()
    out = attention(q, data.k, data.v, first)
    attention(data.q, data.k, data.v, cm.window(28, 3))
    held_masks._recent.clear()
    gc.collect()
    out.sum().backward()
    assert torch.equal(attention(data.q, data.k, data.v, first), out.detach())
    renamed = cm.documents([70])
    with pytest.raises(ValueError, match="70"):
        attention(data.q, data.k, data.v, renamed)  # known by a number, compiled for nothing
    renamed = renamed.named("one")
    held_masks._recent.clear()
    gc.collect()
    longer = torch.zeros(1, 1, 70, 16)
    assert attention(longer, longer, longer, renamed).shape == longer.shape


@pytest.mark.parametrize("sink", [-6e29, -1e30, -2e30, float("-inf")])
def test_a_very_low_sink_has_no_gradient_and_makes_no_nan(sink):
    x = zeros(1, 1, 3, 2)
    for backend in ("cpu", "reference"):
        q, sinks = x.clone().requires_grad_(), torch.tensor([sink], requires_grad=True)
        out = attention(q, x, x + 1, cm.rect(q=(1, 3)), sinks=sinks, backend=backend)
        grads = torch.autograd.grad(out.sum(), (q, sinks))
        assert not any(grad.any() for grad in grads), "NaN counts as any"


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("value_dim", [16, 8])
def test_a_sink_of_minus_infinity_is_no_sink(backend, value_dim):
    """Also in a row that sees nothing: its log-sum-exp is -inf, its output and all gradients are 0."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, 40, 16, requires_grad=True)
    v = torch.randn(1, 2, 40, value_dim, requires_grad=True)
    sinks = torch.tensor([float("-inf"), 0.5], requires_grad=True)
    mask = cm.causal() - cm.rect(q=(3, 9))
    out, lse = attention(q, k, v, mask, sinks=sinks, return_lse=True, backend=backend)
    bare, bare_lse = attention(q, k, v, mask, return_lse=True, backend=backend)
    torch.testing.assert_close(out[:, 0], bare[:, 0])
    torch.testing.assert_close(lse[:, 0], bare_lse[:, 0])
    assert (lse[0, 0, 3:9] == float("-inf")).all()
    assert torch.equal(lse[0, 1, 3:9], torch.full((6,), 0.5))
    with_sinks = torch.autograd.grad(out.sum() + lse.exp().sum(), [q, k, v, sinks])
    without = torch.autograd.grad(bare.sum() + bare_lse.exp().sum(), [q, k, v])
    for a, b in zip(with_sinks, without, strict=False):
        assert torch.isfinite(a).all()
        torch.testing.assert_close(a[:, 0], b[:, 0])
    assert with_sinks[3][0] == 0
    assert torch.isfinite(with_sinks[3][1])


def zeros(*shape, dtype=torch.float32, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


Q = zeros(2, 4, 60, 16)
K = zeros(2, 2, 60, 16)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((Q.numpy(), K, K, MASK), {}, TypeError, "q is ndarray; give a torch tensor"),
        ((Q[0], K, K, MASK), {}, ValueError, r"q has shape \(4, 60, 16\); give \(batch, heads, positions, head dimension\)"),  # noqa: E501
        ((Q.int(), K, K, MASK), {}, TypeError, "q is int32; give one of float16, bfloat16, float32, float64"),
        ((Q, K.half(), K, MASK), {}, TypeError, "q is torch.float32 and k is torch.float16; give equal dtypes"),
        ((Q, K.to("meta"), K, MASK), {}, ValueError, "q is on cpu and k on meta; give tensors of one device"),
        ((Q, K, K[:, :, :59], MASK), {}, ValueError, r"k has shape \(2, 2, 60, 16\) and v \(2, 2, 59, 16\)"),
        ((Q, K[:1], K[:1], MASK), {}, ValueError, "q has 2 batch entries, k and v have 1"),
        ((Q, K[..., :8], K, MASK), {}, ValueError, "q has head dimension 16 and k 8"),
        ((Q[..., :0], K[..., :0], K, MASK), {}, ValueError, "a head dimension is at least 1"),
        ((Q[:, :3], K, K, MASK), {}, ValueError, "q has 3 heads, k and v have 2; the first must be a multiple"),
        ((Q, K, K, torch.ones(60, 60)), {}, TypeError, r"mask is Tensor; .*cm.from_dense\(array\)"),
        ((Q, K, K, "causal"), {}, TypeError, r"mask is str; .*such as cm.causal\(\)"),
        ((Q, K, K, cm.compile(cm.causal(), 8192)), {}, ValueError, "compiled for q_len=8192, kv_len=8192, but q and k have 60 and 60"),  # noqa: E501
        ((Q, K, K, cm.documents([30, 40])), {}, ValueError, "70"),
        ((Q, K, K, cm.per_batch([MASK] * 3)), {}, ValueError, "the mask tells 3 batch entries apart, q has 2"),
        ((Q, K, K, cm.per_head([MASK] * 2)), {}, ValueError, "the mask tells 2 heads apart, q has 4"),
        ((Q, K, K, MASK), {"activation": "relu"}, ValueError, "activation is 'relu'; give one of 'softmax', 'silu'"),
        ((Q, K, K, MASK), {"scale": float("nan")}, ValueError, "scale is nan; give a finite number"),
        ((Q, K, K, MASK), {"scale": "1"}, TypeError, "scale is '1'; give a number"),
        ((Q, K, K, MASK), {"softcap": 0.0}, ValueError, "softcap is 0.0; give a finite positive number"),
        ((Q, K, K, MASK), {"normalizer": 3.0}, ValueError, "normalizer is 3.0 but softmax has none"),
        ((Q, K, K, MASK), {"activation": "silu"}, ValueError, "'silu' needs normalizer"),
        ((Q, K, K, MASK), {"activation": "silu", "normalizer": 0}, ValueError, "normalizer is 0.0; give a finite positive"),  # noqa: E501
        ((Q, K, K, MASK), {"activation": "silu", "normalizer": 1, "return_lse": True}, ValueError, "no log-sum-exp"),
        ((Q, K, K, MASK), {"sinks": [0.0] * 4}, TypeError, r"sinks are list; give a torch tensor of shape \(4,\)"),
        ((Q, K, K, MASK), {"sinks": zeros(2)}, ValueError, r"sinks have shape \(2,\); give one logit a head, \(4,\)"),
        ((Q, K, K, MASK), {"sinks": zeros(4).int()}, TypeError, "sinks are int32; give a float tensor"),
        ((Q, K, K, MASK), {"backend": "portable"}, ValueError, "'portable' can't run this: it runs on cuda tensors"),
        ((Q.to_sparse(), K, K, MASK), {}, TypeError, "q is a sparse_coo tensor; give a dense one"),
        ((Q, K, K, MASK), {"scale": 10**400}, ValueError, "scale is inf; give a finite number"),
        ((Q, K, K, MASK), {"scale": 1e39}, ValueError, r"scale is 1e\+39; give a number up to 3.4028\d+e\+38"),
        ((Q, K, K, MASK), {"softcap": 1e300}, ValueError, r"softcap is 1e\+300; give a number from 1.1\d+e-38 up"),
        ((Q, K, K, MASK), {"softcap": 1e-50}, ValueError, "softcap is 1e-50; give a number from 1.1"),
        ((Q, K, K, MASK), {"backend": None}, TypeError, "backend is None; give 'auto' or one of 'hopper'"),
        ((Q, K, K, MASK), {"backend": ["cpu"]}, TypeError, r"backend is \['cpu'\]; give 'auto' or one of 'hopper'"),
        ((Q, K, K, MASK), {"backend": "fast"}, ValueError, "'fast' is not one of 'auto', 'hopper'"),
    ],
)  # fmt: skip
def test_bad_input(arguments, options, error, message):
    with pytest.raises(error, match=message):
        attention(*arguments, **options)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_autocast_casts_as_it_does_for_pytorchs_own_attention(compiled):
    project = torch.nn.Linear(16, 16)
    x, k, v = (torch.randn(1, 2, 10, 16, requires_grad=True) for _ in range(3))

    def attend(attention):
        return attention(project(x), k, v)

    mask = cm.causal()

    def ours(q, k, v):
        return attention(q, k, v, mask)

    call = torch.compile(attend, fullgraph=True) if compiled else attend
    with torch.autocast("cpu", torch.bfloat16):
        out = call(ours)
        theirs = attend(functools.partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True))
    assert out.dtype == theirs.dtype == torch.bfloat16
    torch.testing.assert_close(out, theirs, atol=2e-2, rtol=2e-2)
    assert [g.dtype for g in torch.autograd.grad(out.float().sum(), (x, k, v))] == [torch.float32] * 3
    with torch.autocast("cpu", torch.bfloat16):
        assert attention(x.double(), k.double(), v.double(), mask).dtype == torch.float64


@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"activation": "silu", "normalizer": 3.0}])
def test_second_derivatives_are_right_or_an_error(options):
    torch.manual_seed(0)
    q = torch.randn(1, 2, 6, 4, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(attention(q, q, q, cm.window(2), **options).sin().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="'cpu' has no second derivatives; use backend='reference'"):
        first.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="'cpu' has no second derivatives; use backend='reference'"):
        torch.autograd.grad(first.sum(), q)
    mask = cm.window(2)
    assert torch.autograd.gradgradcheck(lambda q: attention(q, q, q, mask, backend="reference", **options), (q,))


def dual(q):
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(q, q)
        return torch.autograd.forward_ad.unpack_dual(attention(x, x, x, CAUSAL)).tangent


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.hessian])
def test_functional_derivatives_are_refused(transform):
    mask = cm.causal()
    with pytest.raises(NotImplementedError, match="take derivatives"):
        transform(lambda q: attention(q, q, q, mask).sum())(zeros(1, 1, 4, 8))
    with pytest.raises(NotImplementedError, match="take derivatives"):
        torch.func.vmap(transform(lambda q: attention(q, q, q, mask).sum()))(zeros(2, 1, 1, 4, 8))
    constant = zeros(1, 1, 4, 8)
    assert transform(lambda x: (x * attention(constant, constant, constant, mask)).sum())(constant) is not None


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_is_one_more_batch_axis():
    q = torch.randn(3, 1, 2, 5, 8)
    mask = cm.causal()
    mapped = torch.func.vmap(lambda x: attention(x, x, x, mask))(q)
    torch.testing.assert_close(mapped, torch.stack([attention(x, x, x, mask) for x in q]))


def test_forward_derivatives_are_refused():
    tangents = (torch.ones_like(Q),)
    with pytest.raises(NotImplementedError, match=r"carry a tangent .* take derivatives backward"):
        torch.func.jvp(lambda q: attention(q, K, K, MASK), (Q,), tangents)
    for call in (lambda q: torch.func.jvp(lambda x: attention(x, x, x, CAUSAL), (q,), (q,))[1], dual):
        with pytest.raises(torch._dynamo.exc.Unsupported, match=r"(?s)Observed exception.*carry a tangent"):
            torch.compile(call, fullgraph=True, backend="eager")(Q)
    elsewhere = torch.func.jvp(lambda x: attention(Q, K, K, MASK) + x, (Q,), tangents)[1]
    assert torch.equal(elsewhere, tangents[0])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused():
    nested = torch.nested.nested_tensor([K[0], K[1]])
    with pytest.raises(TypeError, match="k is a nested tensor; give a dense one"):
        attention(Q, nested, K, MASK)


def test_one_mask_for_all_batch_entries_and_heads():
    one = attention(Q, K, K, cm.per_batch([MASK]))
    assert torch.equal(one, attention(Q, K, K, MASK))


def test_choice_is_told():
    assert str(choose_backend(Q, K, K, MASK)).startswith("cpu (hopper: runs on cuda tensors")
    with pytest.raises(TypeError, match=r"\['sink'\] are no arguments; there are \['activation', 'deterministic'"):
        choose_backend(Q, K, K, MASK, sink=3)


@pytest.mark.gpu
@pytest.mark.parametrize("case", [CASES[1], CASES[2], CASES[3]], ids=str)
def test_on_a_gpu(case):
    compiled = cm.compile(MASK, 60)
    data = tensors(compiled, case, "cuda")
    for function in (attention, torch.compile(attention, fullgraph=True, dynamic=False)):
        compare(results(function, data, MASK, "portable"), data, dense(compiled).cuda())
