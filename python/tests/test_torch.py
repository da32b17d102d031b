"""EmbeddingBag beside torch's own, and what may go wrong between forward and backward."""

import copy
import gc
import signal
import threading
import warnings

import numpy as np
import pytest

import hotrow
from test_numpy import resident, step_error

torch = pytest.importorskip("torch", reason="SKIPPED: torch is not installed")

from hotrow.torch import EmbeddingBag  # noqa: E402

ROWS, DIM = 800, 16


@pytest.fixture(autouse=True)
def seeded(random):
    torch.manual_seed(int(random.integers(2**31)))


def batch(bags=12, most=80):
    n = int(torch.randint(0, most, ()))
    offsets = torch.sort(torch.randint(0, n + 1, (bags,)))[0]
    offsets[0] = 0
    return torch.randint(0, ROWS, (n,)), offsets


def pair(mode="sum", optimizer=None, sparse=True, device="cpu", own=(), **settings):
    weight = torch.randn(ROWS, DIM)
    settings_of_ours = {"precision": "fp32", "optimizer": optimizer or hotrow.SGD(0.05), "device": device, **settings, **dict(own)}
    ours = EmbeddingBag.from_pretrained(weight, freeze=False, mode=mode, **settings_of_ours)
    theirs = torch.nn.EmbeddingBag.from_pretrained(weight.clone(), freeze=False, mode=mode, sparse=sparse, **settings)
    return ours, theirs


def rows(bag):
    return bag.state_dict()["weight"]


def close(ours, theirs, most):
    """Relative to the largest value."""
    return (ours - theirs).abs().max() <= most * theirs.abs().max().clamp(min=1)


RULES = {"sgd": (hotrow.SGD(0.05), lambda p: torch.optim.SGD(p, 0.05)), "adagrad": (hotrow.AdaGrad(0.05, eps=1e-10), lambda p: torch.optim.Adagrad(p, 0.05))}


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("settings", [{}, {"padding_idx": 3}, {"include_last_offset": True, "padding_idx": -1}])
def test_200_steps_beside_torch(mode, rule, sparse, settings):
    ours, theirs = pair(mode, RULES[rule][0], sparse, **settings)
    optimiser = RULES[rule][1](theirs.parameters())
    before = rows(ours).clone()
    for _ in range(200):
        ids, offsets = batch()
        if settings.get("include_last_offset"):
            offsets = torch.cat([offsets, torch.tensor([len(ids)])])
        weights = torch.rand(len(ids), requires_grad=True) if mode == "sum" else None
        weights2 = weights.detach().clone().requires_grad_() if weights is not None else None
        a, b = ours(ids, offsets, weights), theirs(ids, offsets, weights2)
        # A row goes its own way by what its steps have rounded, so that later outputs are compared as the rows are.
        assert close(a, b, 1e-5)
        grad = torch.randn_like(a)
        a.backward(grad)
        b.backward(grad)
        if weights is not None and len(ids):
            assert close(weights.grad, weights2.grad, 1e-5)
        optimiser.step()
        optimiser.zero_grad()
    assert close(rows(ours), theirs.weight.detach(), 1e-5)
    assert not close(rows(ours), before, 1e-2)


HEADS = {
    "einsum": lambda out: torch.einsum("bd,xd->xb", out, torch.linspace(-1, 1, 5 * DIM).reshape(5, DIM)),
    "transposed": lambda out: out.t().contiguous(),
    "conv1d": lambda out: torch.nn.functional.conv1d(out.t()[None], torch.linspace(-1, 1, 3 * DIM).reshape(1, DIM, 3)),
    "layer_norm": lambda out: torch.nn.functional.layer_norm(out.t(), (len(out),)) * torch.linspace(0, 1, len(out)),
    "expanded": lambda out: out.sum(1),
    "compiled": torch.compile(lambda out: out.t().contiguous() * 0.5, backend="aot_eager"),
}


@pytest.mark.parametrize("head", HEADS)
def test_gradients_of_every_layout_beside_torch(head):
    ours, theirs = pair()
    optimiser, strides = torch.optim.SGD(theirs.parameters(), 0.05), set()
    for _ in range(10):
        ids, weights = torch.randint(0, ROWS, (12, 5)), [torch.linspace(1, 2, 60).reshape(12, 5).requires_grad_() for _ in range(2)]
        for bag, weight in zip((ours, theirs), weights):
            (out := bag(ids, None, weight)).register_hook(lambda grad: strides.add(grad.stride()))
            HEADS[head](out).square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
        assert close(weights[0].grad, weights[1].grad, 1e-5)
    assert close(rows(ours), theirs.weight.detach(), 1e-5) and strides != {(DIM, 1)}


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_outputs_of_every_shape(mode):
    ours, theirs = pair(mode)
    for ids, offsets in [batch(), batch(), (torch.randint(0, ROWS, (7, 5)), None), batch(1, 2)]:
        assert close(ours.eval()(ids, offsets), theirs(ids, offsets), 1e-6)
        if offsets is not None:
            assert close(ours(ids.int(), offsets.int()), theirs(ids.int(), offsets.int()), 1e-6)
            for kind in (torch.uint8, torch.int16):  # too narrow for the number of ids
                assert close(ours(ids.repeat(999), offsets.to(kind)), theirs(ids.repeat(999), offsets), 1e-6)
    # The comparison is one: another row is seen.
    assert not close(ours(torch.tensor([[1]])), theirs(torch.tensor([[2]])), 1e-6)
    ids = torch.randint(0, ROWS, (5, 14))[:, ::2]
    assert close(ours(ids), theirs(ids), 1e-6)
    assert ours(torch.empty(4, 0, dtype=torch.int64)).tolist() == [[0.0] * DIM] * 4  # torch fails here


@pytest.mark.parametrize(
    "call,error,text",
    [
        (lambda b: b(torch.tensor([ROWS]), torch.tensor([0])), IndexError, "found 800"),
        (lambda b: b(torch.tensor([-1]), torch.tensor([0])), IndexError, "found -1"),
        (lambda b: b(torch.tensor([[1, 2]]), per_sample_weights=torch.ones(2)), ValueError, "per_sample_weights: wanted shape (1, 2)"),
        (lambda b: EmbeddingBag.from_pretrained(torch.ones(4)), ValueError, "embeddings"),
        (lambda b: EmbeddingBag(10, 4, device="cpu")(torch.tensor([[1]]), None, torch.ones(1, 1)), ValueError, 'mode="sum"'),
        (lambda b: b.load_state_dict({"weight": rows(b), "other": torch.ones(1)}), RuntimeError, "Unexpected"),
        (lambda b: hotrow.torch.step([]), ValueError, "one or more, found a list"), (lambda b: b.step(), ValueError, 'found one with update="backward"'),
        (copy.deepcopy, TypeError, "cannot copy or pickle"),
        (lambda b: EmbeddingBag.from_pretrained(torch.eye(3).to_sparse()), ValueError, "torch.sparse_coo"),
        (lambda b: EmbeddingBag.from_pretrained(torch.ones(2, 2, dtype=torch.int64)), ValueError, "embeddings: wanted floats, found torch.int64"),
        (lambda b: EmbeddingBag.from_pretrained(torch.ones(2, 2, device="meta")), ValueError, "on meta"),
        (lambda b: EmbeddingBag.from_pretrained(np.full((2, 2), None)), ValueError, "embeddings: wanted floats, found object"),
        (lambda b: EmbeddingBag(10, 4, forward_only=True, device="cpu")(torch.tensor([[1]])), RuntimeError, "found forward_only=True"),
        (lambda b: EmbeddingBag("10", 4), ValueError, "num_embeddings: wanted a whole number"),
        (lambda b: b(torch.nested.nested_tensor([torch.tensor([1])])), TypeError, "input: wanted a dense tensor, found a nested"),
        (lambda b: b([[1]]), TypeError, "input: wanted a dense tensor, found list"),
        (lambda b: b.eval()(torch.tensor([[1]], device="meta")), ValueError, "input: wanted a tensor whose values can be read"),
        (lambda b: torch.jit.script(torch.nn.Sequential(b)), ValueError, "leave this module out"),
        (lambda b: torch.fx.symbolic_trace(torch.nn.Sequential(b)), ValueError, "leave this module out"),
        (lambda b: torch.export.export(b, (torch.tensor([[1]]),), strict=True), RuntimeError, "leave this module out"),
        (lambda b: torch.compile(b, fullgraph=True, backend="eager")(torch.tensor([[1]])), RuntimeError, "leave this module out"),
        (lambda b: torch.export.export(b.eval(), (torch.tensor([[1]]),), strict=False), ValueError, "torch.export"),
        (lambda b: torch.jit.trace(b.eval(), torch.tensor([[1]])), ValueError, "torch.jit.trace"),
        (lambda b: EmbeddingBag(10, 4, update="step").step(max_norm=float("nan")), ValueError, "max_norm: wanted a number of 0 or more, or None, found nan"),
        *[(lambda b, given=given: EmbeddingBag(10, 4, **given), ValueError, text) for given, text in (
            (dict(mode="max"), "mode"), (dict(cache=5), "cache: wanted a share"), (dict(padding_idx=10), "padding_idx"), (dict(state="fp16"), "state"),
            (dict(scale_grad_by_freq=True), "found scale_grad_by_freq"), (dict(cache_rows=3), "found cache_rows"),
            (dict(optimizer="adam"), "optimizer: wanted hotrow.SGD(lr)"),
            (dict(update="later"), "update: wanted"), (dict(update="step", grad_scaler=torch.amp.GradScaler("cpu")), "pass a scaler to hotrow.torch.step"),
            (dict(cache="x"), "cache: wanted a number, found 'x'"), (dict(padding_idx=True), "padding_idx: wanted a whole number, found True"),
            (dict(features=[0, 0]), "one feature, found features"),
        )],
        *[(lambda b, given=given: b(*given), ValueError, text) for given, text in (
            ((torch.tensor([1]),), "dimension alone, found none"),
            ((torch.tensor([[1]]), torch.tensor([0])), "offsets: wanted them with an input of one dimension alone, found some"),
            ((torch.tensor([1.0]), torch.tensor([0])), "whole numbers"), ((torch.tensor([1]), torch.tensor([0]), torch.ones(2)), "weights"),
            ((torch.tensor([[1]]), None, torch.ones(1, 1, dtype=torch.complex64)), "wanted floats"),
            ((torch.ones(1, 1, 1, dtype=torch.int64), torch.tensor([0])), "one or two dimensions, found 3"),
            ((torch.tensor([1]), torch.tensor([[0]])), "offsets: wanted one dimension, found 2"),
            ((torch.tensor([1]), torch.zeros(1)), "offsets: wanted whole numbers"), ((torch.tensor([[1, 2]]).to_sparse(),), "torch.sparse_coo"),
            ((torch.tensor([[1]]), None, torch.ones(1, 1).to_sparse()), "torch.sparse_coo"),
        )],
        *[(lambda b, given=given: b.load_state_dict(given), RuntimeError, text) for given, text in (
            ({"weight": torch.ones(3, 3)}, "wanted shape"), ({"weight": torch.full((ROWS, DIM), torch.nan)}, "finite"), ({}, "Missing"),
            ({"weight": np.full((ROWS, DIM), 1e300)}, "weight: wanted finite"), ({"weight": np.full((ROWS, DIM), "a")}, "weight: wanted floats, found <U1"),
            ({"weight": torch.eye(3).to_sparse()}, "torch.sparse_coo"), ({"weight": torch.full((ROWS, DIM), 1e300, dtype=torch.float64)}, "finite"),
            ({"weight": 3}, "weight"), ({"packed": torch.ones(9)}, "packed: wanted uint8, found float32"),
            ({"packed": torch.ones(9, dtype=torch.uint8)}, "packed, header: wanted"),
        )],
    ],  # fmt: skip
)
def test_bad_input_is_named(call, error, text):
    bag, _ = pair()
    before = rows(bag)
    with pytest.raises(error) as found:
        call(bag)
    assert text in str(found.value), repr(found.value)
    assert torch.equal(rows(bag), before) and not bag.group.pending


def test_nothing_changes_in_eval_without_gradients_and_frozen():
    bag, _ = pair()
    ids, before = torch.tensor([[1, 2]]), rows(bag)
    with torch.no_grad():
        assert not bag(ids).requires_grad
    assert not bag.eval()(ids).requires_grad
    assert not bag.train().requires_grad_(False)(ids).requires_grad and bag.requires_grad_() is bag
    frozen = EmbeddingBag.from_pretrained(before.double().numpy(), device="cpu", precision="fp32")
    assert not frozen(ids).requires_grad and torch.equal(rows(bag), before)
    assert bag.group.counters()["accesses"] == 0
    bag.train()(ids).sum().backward()
    assert not torch.equal(rows(bag), before)


def test_what_may_come_between_forward_and_backward():
    bag, _ = pair()
    ids = torch.tensor([[1, 2]])

    def fails():
        out = bag(ids)
        raise RuntimeError(out.shape)

    said = 0
    for _ in range(3):
        with pytest.raises(RuntimeError):
            fails()
        gc.collect()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            bag(ids).sum().backward()
        said += sum("given up" in str(warning.message) and warning.filename == __file__ for warning in caught)
    assert said == 1
    # Its outputs are in use: refused once.
    first = bag(ids)
    with pytest.raises(hotrow.OrderError, match="outputs still in use"):
        bag(ids)
    before = rows(bag)
    with pytest.raises(hotrow.OrderError, match="found that of an earlier one"):
        first.sum().backward()
    assert torch.equal(rows(bag), before)
    second = bag(ids)
    second.sum().backward(retain_graph=True)
    assert not torch.equal(rows(bag), before)
    with pytest.raises(hotrow.OrderError, match="backward"):
        second.sum().backward()
    third = bag(ids)
    bag.discard_pending()
    with pytest.raises(hotrow.OrderError, match="backward"):
        third.sum().backward()
    done = 0
    for step in range(10):
        try:
            out = bag(ids)
            if step == 2:
                raise ValueError
            out.sum().backward()
            done += 1
        except (ValueError, hotrow.OrderError):
            pass
    assert done == 8


@pytest.mark.filterwarnings("ignore:hotrow. a forward")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer here")
def test_interrupts_leave_it_working():
    bag, _ = pair()
    ids, interrupted = torch.tensor([[1, 2]]), 0
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        while interrupted < 300:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + 1e-6 * interrupted)
                while True:
                    bag(ids).sum().backward()
            except KeyboardInterrupt:
                interrupted += 1
            except hotrow.OrderError as error:
                assert "still in use" in str(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    gc.collect()
    bag.discard_pending()
    bag(ids).sum().backward()


def test_weights_have_a_gradient_in_a_frozen_forward():
    ours, theirs = pair(padding_idx=3)
    ids, offsets = torch.tensor([1, 3, 3, 7, 9]), torch.tensor([0, 2, 2])
    weights, weights2 = (torch.linspace(1, 2, 5).requires_grad_() for _ in range(2))
    before = rows(ours)
    ours.eval()(ids, offsets, weights).square().sum().backward()
    theirs(ids, offsets, weights2).square().sum().backward()
    assert close(weights.grad, weights2.grad, 1e-5) and weights.grad[0] != 0 and torch.equal(rows(ours), before)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_the_default_type_does_not_matter(kind):
    bag, _ = pair()
    try:
        torch.set_default_dtype(kind)
        assert bag(torch.tensor([[1, 2]])).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    bag.discard_pending()
    with torch.device("meta"):
        assert bag.eval()(torch.tensor([[1, 2]], device="cpu")).device.type == "cpu"


@pytest.mark.parametrize("state", ["fp32", "packed"])
def test_state_goes_over(state):
    make = lambda: EmbeddingBag(ROWS, DIM, mode="sum", cache=0.1, optimizer=hotrow.AdaGrad(0.1), state=state, device="cpu", init=hotrow.Uniform(-1, 1))
    bag, other = make(), torch.nn.ModuleDict({"table": make()})
    for _ in range(5):
        bag(*batch()).square().sum().backward()
    saved = torch.nn.ModuleDict({"table": bag}).state_dict()
    assert list(saved) == ["table.weight" if state == "fp32" else "table.packed"]
    other.load_state_dict(saved)
    found, wanted = (b.group.read_rows(np.arange(ROWS)) for b in (other["table"], bag))
    assert np.array_equal(found, wanted) if state == "packed" else np.abs(found - wanted).max() < 0.02
    more = batch()
    outputs = [b(*more) for b in (bag, other["table"])]
    for out in outputs:
        out.square().sum().backward()
    same = torch.equal(*outputs) and np.array_equal(*(b.group.read_rows(np.arange(ROWS)) for b in (other["table"], bag)))
    assert same == (state == "packed")  # FP32 leaves out the optimiser's states


@pytest.mark.parametrize("rule", ["AdaGrad(0.1)", "Adam(0.1, own_count=True)", "Momentum(0.1)", "SGD(0.3)"])
def test_a_packed_state_where_no_optimiser_is_named(rule):
    usual = {"mode": "sum", "cache": 0.1, "device": "cpu", "state": "packed"}
    make = lambda **settings: torch.nn.ModuleDict({"table": EmbeddingBag(ROWS, DIM, **{**usual, **settings})})
    trained, other, frozen = make(optimizer=eval(f"hotrow.{rule}")), make(), make(frozen=True, seed=5, cache=0.3, policy="lfu")
    for _ in range(5):
        trained["table"](*batch()).square().sum().backward()
    ids, state, before = torch.randint(0, ROWS, (40, 1)), trained.state_dict(), other["table"].group.read_rows(np.arange(ROWS))
    wanted = trained.eval()["table"](ids)
    # A table that is not trained needs none of the states.
    assert not torch.equal(frozen["table"](ids), wanted)
    frozen.load_state_dict(state)
    assert torch.equal(frozen["table"](ids), wanted) and not frozen["table"](ids).requires_grad
    if rule.startswith("SGD"):
        other.load_state_dict(state)
        return
    with pytest.warns(UserWarning, match="not taken"), pytest.raises(RuntimeError) as found:
        other.load_state_dict(state)
    assert f"packed: wanted optimizer=hotrow.{rule}, which trained it, found hotrow.SGD(" in str(found.value)
    make(optimizer=eval(f"hotrow.{rule}")).load_state_dict(state)
    # Who is not strict is warned, and told which key it is.
    for some in (state, {"table.packed": state["table.packed"][:-1]}, {"table.weight": torch.ones(3, 3)}, {"table.weight": "no"}):
        with pytest.warns(UserWarning, match="not taken"):
            assert other.load_state_dict(some, strict=False).missing_keys == list(some)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as `python -W error` does
        assert other.load_state_dict(state, strict=False).missing_keys == ["table.packed"]
    assert other.load_state_dict({}, strict=False).missing_keys == ["table.weight"] and np.array_equal(other["table"].group.read_rows(np.arange(ROWS)), before)
    with pytest.warns(UserWarning, match="packed, precision: wanted int4, found int8; give the bag the settings with which"):
        make(precision="int4", optimizer=eval(f"hotrow.{rule}")).load_state_dict(state, strict=False)


def test_learning_rate_threads_and_compile():
    bag, _ = pair(optimizer=hotrow.SGD(0.0))
    ids, before = torch.tensor([[5]]), rows(bag)
    bag(ids).sum().backward()
    assert torch.equal(rows(bag), before)
    bag.set_learning_rate(0.5)
    bag(ids).sum().backward()
    assert torch.allclose(rows(bag)[5], before[5] - 0.5)
    compiled = torch.compile(torch.nn.Sequential(bag, torch.nn.Tanh()), backend="eager")
    compiled(ids).sum().backward()
    assert not torch.allclose(rows(bag)[5], before[5] - 0.5)
    bag.eval()
    wanted, found = bag(ids), []
    threads = [threading.Thread(target=lambda: found.extend(bag(ids) for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200 and all(torch.equal(out, wanted) for out in found)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_loop_over_a_loader_learns(device, request):
    if device == "gpu":
        request.getfixturevalue("gpu")
    target = torch.randn(ROWS)
    data = torch.utils.data.TensorDataset(ids := torch.randint(0, ROWS, (4000, 3)), target[ids].sum(1))
    bag = EmbeddingBag(ROWS, DIM, mode="sum", precision="int8", cache=0.2, optimizer=hotrow.AdaGrad(0.3), device=device, init=0.0)
    assert (bag.group.device == "cpu") == (device == "cpu")
    top = torch.nn.Linear(DIM, 1)
    optimiser, losses = torch.optim.Adam(top.parameters(), 0.01), []
    for _ in range(4):
        for some, wanted in torch.utils.data.DataLoader(data, batch_size=100, shuffle=True, num_workers=0):
            loss = (top(bag(some)).squeeze(1) - wanted).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    assert np.mean(losses[-20:]) < 0.2 * np.mean(losses[:5]), (losses[:5], losses[-20:])


def test_memory_does_not_grow():
    bag = EmbeddingBag(1000, 8, cache=0.1, optimizer=hotrow.AdaGrad(0.1), device="cpu", init=0.0)
    batches = [(torch.randint(0, 1000, (20,)), torch.arange(0, 20, 5)) for _ in range(10)]

    def steps(count):
        for k in range(count):
            bag(*batches[k % 10]).sum().backward()

    steps(5_000)
    before = resident()
    steps(100_000)
    assert resident() - before < 4 << 20


@pytest.mark.parametrize("settings,wanted", [({}, 0.289), ({"write_rounding": "stochastic"}, 0.408)])
def test_loaded_weights_are_rounded_to_nearest(settings, wanted):
    weight = torch.rand(ROWS, 64) * 2 - 1
    frozen = EmbeddingBag.from_pretrained(weight, device="cpu", **settings)
    loaded = EmbeddingBag(ROWS, 64, device="cpu", **settings)
    loaded.load_state_dict({"weight": weight})
    for bag in (frozen, loaded):
        assert abs(step_error(weight.double().numpy(), bag.group.read_rows(np.arange(ROWS))) - wanted) < 0.015
