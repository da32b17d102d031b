"""Updates at a step beside torch's: scaled losses, clipping, sums of batches, several ranks; and memory that changes before the backward."""

import copy
import re
import time
from datetime import timedelta

import numpy as np
import pytest

import hotrow
from test_guide import PAGE

torch = pytest.importorskip("torch", reason="SKIPPED: torch is not installed")

import hotrow.torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from hotrow.torch import EmbeddingBag  # noqa: E402
from test_torch import DIM, ROWS, RULES, batch, close, pair, rows, seeded  # noqa: E402, F401

BOTH = pytest.mark.parametrize("planted", [False, True])
"""Whether the comparison is given something wrong, which it must find."""


def recipe(name):
    """The function of that name in the guide, whose block runs as it stands there."""
    names = {"torch": torch, "hotrow": hotrow}
    exec(next(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if f"def {name}(" in block), names)
    return names[name]


class Model(torch.nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table, self.top = table, torch.nn.Linear(DIM, 1)

    def forward(self, ids, wanted):
        return (self.top(self.table(ids)).squeeze(1) - wanted).square().mean()


def models(rule, **own):
    """A model of ours and one of torch's, each with an optimiser; ours leaves the table out."""
    pairs = [Model(table) for table in pair("sum", RULES[rule][0], sparse=False, own={"update": "step", **own})]
    pairs[0].top.load_state_dict(pairs[1].top.state_dict())
    return [(model, RULES[rule][1]([*model.parameters()])) for model in pairs]


def batches(count, scale=1.0):
    return [(torch.randint(0, ROWS, (20, 5)), torch.randn(20) * scale) for _ in range(count)]


def same(ours, theirs, planted=False):
    assert close(rows(ours.table), theirs.table.weight.detach(), 1e-5) == (not planted)
    assert planted or close(ours.top.weight, theirs.top.weight, 1e-5)


@pytest.mark.parametrize("rule", RULES)
@BOTH
def test_the_recipe_for_scaled_losses(rule, planted, monkeypatch):
    scaled_step, real = recipe("scaled_step"), hotrow.torch._deferred.step
    if planted:  # the gradients keep the scale
        monkeypatch.setattr(hotrow.torch._deferred, "step", lambda tables, scaler, factor, *more: real(tables, scaler, 1.0, *more))
    (ours, optimiser), (theirs, optimiser2) = models(rule)
    scaler, scaler2 = (torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=3) for _ in range(2))
    for k, (ids, wanted) in enumerate(batches(20)):
        wanted[0] = float("inf") if k in (4, 11) else wanted[0]
        scaled_step(ours.table, ours.top, optimiser, scaler, ids, wanted)
        optimiser2.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = theirs(ids, wanted)
        scaler2.scale(loss).backward()
        scaler2.step(optimiser2)
        scaler2.update()
        assert planted or scaler.get_scale() == scaler2.get_scale()
    same(ours, theirs, planted)


@pytest.mark.parametrize("rule", RULES)
@BOTH
def test_the_recipe_for_clipping_and_sums(rule, planted):
    clipped_step = recipe("clipped_step")
    (ours, optimiser), (theirs, optimiser2) = models(rule)
    for k in range(20):
        some, before = batches(3, 10.0 if k % 2 else 0.01), ours.table.group.counters()["accesses"]
        clipped_step(ours.table, ours.top, optimiser, some)
        assert ours.table.group.counters()["accesses"] - before == len(torch.cat([ids for ids, _ in some]).unique())
        optimiser2.zero_grad()
        for one in some:
            (theirs(*one) / 3).backward()
        # Planted: a norm without the table.
        torch.nn.utils.clip_grad_norm_(theirs.top.parameters() if planted else theirs.parameters(), 1.0)
        optimiser2.step()
    same(ours, theirs, planted)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("settings", [{"padding_idx": 3}, {"include_last_offset": True, "padding_idx": -1}])
@BOTH
def test_sums_of_backwards_beside_torch(mode, rule, settings, planted):
    ours, theirs = pair(mode, RULES[rule][0], own={"update": "step"}, **settings)
    optimiser = RULES[rule][1](theirs.parameters())
    for k in range(20):
        held, before = [], rows(ours)
        for _ in range(k % 4):
            ids, offsets = batch()
            offsets = torch.cat([offsets, torch.tensor([len(ids)])]) if "include_last_offset" in settings else offsets
            weights = [torch.linspace(-1, 2, 2 * len(ids), dtype=t)[::2].requires_grad_() for t in (torch.float64, torch.float32)]
            held.append([bag(ids, offsets, *[w][: mode == "sum"]) for bag, w in zip((ours, theirs), weights)] + weights)
            assert planted or close(*held[-1][:2], 1e-5)
        for a, b, *weights in held:
            grad = torch.randn(DIM, len(a)).t()
            (a * grad).sum().backward()
            if not planted or a is not held[0][0]:
                (b * grad).sum().backward()
            assert planted or mode == "mean" or not len(weights[0]) or close(weights[0].grad, weights[1].grad, 1e-5)
        assert torch.equal(rows(ours), before) and ours.step()
        optimiser.step()
        optimiser.zero_grad()
    assert close(rows(ours), theirs.weight.detach(), 1e-5) == (not planted)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("settings", [{"out_of_range": "skip"}, {"out_of_range": "clamp", "padding_idx": 19}])
def test_ids_outside_the_table_count_as_in_an_immediate_update(mode, settings):
    bags = [EmbeddingBag(20, 4, mode, precision="fp32", device="cpu", update=update, **settings) for update in ("backward", "step")]
    before, ids, grad = rows(bags[0]), torch.randint(0 if "padding_idx" in settings else -5, 30, (6, 5)), torch.randn(6, 4)
    for bag in bags:
        bag(ids).backward(grad)
    assert bags[1].step() and close(*map(rows, bags), 1e-6) and not torch.equal(rows(bags[0]), before)


def test_a_step_is_whole_or_refused():
    bag, other = (pair(own={"update": "step", "cache": 0.5, "optimizer": rule})[0] for rule in (hotrow.Adam(0.1), hotrow.SGD(0.1)))
    ids, before, scaler = torch.tensor([[1, 2]]), [rows(bag), rows(other)], torch.amp.GradScaler("cpu")
    stay = lambda: torch.equal(rows(bag), before[0]) and torch.equal(rows(other), before[1])
    assert bag.step()  # without a gradient
    bag(ids).sum().backward()
    bag.zero_grad()
    assert bag.step() and bag.group.counters()["accesses"] == 0 and stay()
    scaler.scale(bag(ids).sum() * float("inf")).backward()
    assert not bag.step(scaler) and stay()
    bag(ids).sum().backward()
    with pytest.raises(hotrow.OrderError, match=r"scaler: wanted .* scaler.update\(\) between two steps"):
        bag.step(scaler)
    scaler.update()
    assert scaler.get_scale() == 32768
    # A gradient that is not finite: of a bag, of a parameter, of a sparse one.
    dense, sparse, inf = torch.nn.Linear(2, 2), torch.nn.Embedding(4, 2, sparse=True), float("inf")
    for bad in range(3):
        (bag(ids).sum() + other(ids).sum() * (inf if bad == 0 else 1)).backward()
        dense.weight.grad, sparse.weight.grad = torch.full((2, 2), inf if bad == 1 else 1.0), None
        sparse(torch.tensor([1, 1])).sum().backward(torch.tensor(inf if bad == 2 else 1.0))
        assert not hotrow.torch.step([bag, other], None, 1.0, [*dense.parameters(), sparse.weight]) and stay()
    wrong = {"parameters": [None, dense, [{"params": []}], dense.named_parameters()], "max_norm": ["x", -1, True], "scaler": [2.0]}
    wrong["bags"] = [None, [[bag]], dense, torch.nn.EmbeddingBag(2, 2)]
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        with pytest.raises(hotrow.InvalidValue, match=f"^{name}: wanted .*, found .*; "):
            hotrow.torch.step(**{"bags": other, name: value})
    with pytest.raises(hotrow.OrderError, match=r"scaler: wanted scaler.scale\(loss\)"):
        bag.step(torch.amp.GradScaler("cpu"))
    # A sparse gradient counts once for a row. A backward behind a step knows the rows of its forward.
    dense.weight.grad, sparse.weight.grad, weights = torch.zeros(2, 2), None, torch.ones(1, 2, requires_grad=True)
    sparse(torch.tensor([1, 1])).sum().backward()
    late = other(ids, None, weights).sum()
    other(ids).sum().backward()
    assert hotrow.torch.step(other, max_norm=1.0, parameters=(p for p in [dense.weight, sparse.weight]))
    clip = (2 * DIM + 8) ** -0.5
    assert torch.allclose(before[1][1] - rows(other)[1], torch.full((DIM,), 0.1 * clip), rtol=1e-4)
    assert torch.allclose(sparse.weight.grad.to_dense()[1], torch.tensor(2 * clip))
    late.backward()
    assert torch.allclose(weights.grad[0], before[1][[1, 2]].sum(1), rtol=1e-5, atol=1e-5)
    # What a forward and a backward during a step bring counts in the next one.
    other.zero_grad()
    start, real = rows(other), other.group.backward
    other.group.backward = torch.enable_grad()(lambda grad: (other(ids).sum().backward(), real(grad)))
    other(ids).sum().backward()
    assert other.step()
    other.group.backward = real
    assert other.step() and torch.allclose((start - rows(other))[1], torch.tensor(0.2), rtol=1e-4)
    # An error in the second table leaves the first, and its gradients.
    (bag(ids).sum() + other(ids).sum()).backward()
    other.group.close()
    with pytest.raises(hotrow.OrderError):
        hotrow.torch.step([bag, other])
    assert torch.equal(rows(bag), before[0]) and bag.step() and not torch.equal(rows(bag), before[0])


@BOTH
def test_a_scaler_of_immediate_updates(planted):
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    ours, theirs = pair(sparse=False, own={"grad_scaler": None if planted else scaler})
    optimiser = torch.optim.SGD(theirs.parameters(), 0.05)
    for k in range(20):
        ids, offsets = batch()
        weights = [torch.ones(len(ids), requires_grad=True) for _ in range(2)]
        for bag, weight in zip((ours, theirs), weights):
            scaler.scale((bag(ids, offsets, weight) * (float("inf") if k == 7 else 0.1)).sum()).backward()
        assert planted or k == 7 or not len(ids) or close(weights[0].grad, weights[1].grad, 1e-5)
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad()
    assert close(rows(ours), theirs.weight.detach(), 1e-5) == (not planted)


@pytest.mark.parametrize("update", ["backward", "step", "frozen"])
@pytest.mark.parametrize("changed", range(3))
def test_memory_that_changes_before_the_backward(update, changed):
    bags = pair(own={"update": "step" if update == "step" else "backward"}, include_last_offset=True)
    bags[0].train(update != "frozen")
    start, grads = rows(bags[0]), []
    for seen in (True, False):
        for bag in bags:
            arrays = np.array([5, 6, 7, 8]), np.array([0, 1, 4]), np.linspace(1, 2, 4, dtype=np.float32)
            tensors = [torch.from_numpy(array) for array in arrays]
            out = (bag(tensors[0], tensors[1], tensors[2].requires_grad_()) * torch.tensor([[1.0], [3.0]])).sum()
            if seen:
                with torch.no_grad():
                    tensors[changed].zero_()
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    out.backward()
                assert torch.equal(rows(bags[0]), start)
                bags[0].discard_pending()
                continue
            # torch does not see what numpy writes: its own bag goes without.
            arrays[changed][:] = arrays[changed] if bag is bags[1] else 0
            out.backward()
            grads.append(tensors[2].grad)
    assert close(*grads, 1e-5) and grads[0].abs().max() > 0
    if update != "frozen":
        assert update == "backward" or bags[0].step()
        torch.optim.SGD(bags[1].parameters(), 0.05).step()
        assert close(rows(bags[0]), bags[1].weight.detach(), 1e-5)


def equal_everywhere(tensor):
    found = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(found, tensor)
    return all(torch.equal(tensor, other) for other in found)


def a_rank(rank, world, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=timedelta(seconds=120))
    torch.manual_seed(rank)  # tables, dense parts and batches are others on each rank
    train, parallel = recipe("train"), torch.nn.parallel.DistributedDataParallel
    with pytest.raises(hotrow.OrderError, match=r"sync\(\).* or sync\(alone=True\)"):
        EmbeddingBag(9, 2)(torch.tensor([[1]]))
    for rule in RULES:
        for planted in (False, True):  # the gradients of the other ranks are left out
            (ours, optimiser), (theirs, optimiser2) = models(rule, seed=rank)
            model, some = parallel(theirs), batches(20)
            if planted:
                ours.table.sync()
                ours.table.sync(alone=True)
                ours.table.sync = lambda: None
            train(ours.table, ours.top, optimiser, some)
            for one in some:
                optimiser2.zero_grad()
                model(*one).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser2.step()
            same(ours, theirs, planted)
            assert planted or equal_everywhere(rows(ours.table))
        # Each backward moves the table. Some batches of a rank are empty.
        ours, theirs = pair("sum", RULES[rule][0], sparse=False, own={"seed": rank})
        model, optimiser = parallel(theirs), RULES[rule][1](theirs.parameters())
        ours.sync()
        for k in range(20):
            ids, grad = torch.randint(0, ROWS, (0 if k % 3 == rank else 20, 5)), torch.randn(20, DIM)
            optimiser.zero_grad()
            for bag in (ours, model):
                (bag(ids) * grad[: len(ids)]).sum().backward()
            optimiser.step()
        assert close(rows(ours), theirs.weight.detach(), 1e-5)
    # Packed rows, cache, states and step have equal bits.
    for update in ("backward", "step"):
        settings = dict(cache=0.1, seed=rank if update == "step" else 0, init=float(rank), device="cpu", update=update, state="packed")
        bag = EmbeddingBag(ROWS, DIM, optimizer=hotrow.Adam(0.1), **settings)
        bag.sync(alone=True)
        for _ in range(4 + rank):
            bag(*batch()).sum().backward()
            assert update == "backward" or bag.step()
        bag.sync()
        for k in range(5):
            if update == "backward" or k % world != rank:  # a bag without a gradient takes part
                bag(*batch()).square().sum().backward()
            assert update == "backward" or bag.step(max_norm=1.0)
            assert equal_everywhere(bag.state_dict()["packed"])
    bag.set_learning_rate(0.1 + rank)
    with pytest.raises(hotrow.InvalidValue, match="same learning rate"):
        bag.step()
    bag.set_learning_rate(0.1)
    # A gradient that is not finite on one rank.
    before, scaler = bag.state_dict()["packed"], torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(bag(*batch()).sum() * (float("nan") if rank else 1.0)).backward()
    assert not bag.step(scaler) and torch.equal(bag.state_dict()["packed"], before)
    scaler.update()
    assert scaler.get_scale() == 4.0
    # Two of the ranks, of which the second fails.
    members = [0, world - 1]
    some = dist.new_group(members, timeout=timedelta(seconds=5))
    with pytest.raises(hotrow.InvalidValue, match="sync: wanted tables as on rank 0" if rank in members else "process_group: wanted"):
        EmbeddingBag(9 + rank, 2, device="cpu").sync(some)
    if rank in members:
        bag = EmbeddingBag(9, 2, device="cpu", precision="fp32", update="step")
        bag.sync(some)
        bag(torch.tensor([[1]])).sum().backward()
        before = rows(bag)
        time.sleep(8 if rank else 0)
        for _ in range(2):
            with pytest.raises(hotrow.OrderError, match=r"call sync\(\) on all of them again"):
                bag.step()
        assert torch.equal(rows(bag), before)
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("world", [2, 3])
def test_several_ranks(world, tmp_path):
    torch.multiprocessing.spawn(a_rank, (world, str(tmp_path)), world)
