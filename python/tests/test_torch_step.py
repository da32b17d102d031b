"""Updates at a step beside torch's optimisers: loss scales, clipping, sums of batches, several ranks; and memory that changes before the backward."""

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


def recipe(word):
    """The block of the guide that defines it, as names of a module."""
    names = {"torch": torch, "hotrow": hotrow, "EmbeddingBag": EmbeddingBag, "__name__": "recipe"}
    exec(next(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if word in block), names)
    return names


def models(rule, **own):
    """A table and a dense part of ours, and of torch's with its optimiser."""
    ours, theirs = pair("sum", RULES[rule][0], sparse=False, own={"update": "step", **own})
    top = torch.nn.Linear(DIM, 1)
    tops = top, copy.deepcopy(top)
    return ours, theirs, tops, [RULES[rule][1]([*part.parameters()]) for part in (top, torch.nn.ModuleList([theirs, tops[1]]))]


def loss(table, top, ids, wanted):
    return (top(table(ids)).squeeze(1) - wanted).square().mean()


def batches(count, size=20, scale=1.0):
    return [(torch.randint(0, ROWS, (size, 5)), torch.randn(size) * scale) for _ in range(count)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("planted", [False, True])
def test_the_recipe_for_scaled_losses(rule, planted, monkeypatch):
    scaled_step, real = recipe("def scaled_step")["scaled_step"], hotrow.torch._deferred.step
    if planted:  # the scale stays in the gradients
        monkeypatch.setattr(hotrow.torch._deferred, "step", lambda tables, scaler, factor, *more: real(tables, scaler, 1.0, *more))
    ours, theirs, tops, optimisers = models(rule)
    scalers = [torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=3) for _ in range(2)]
    for k, (ids, wanted) in enumerate(batches(20)):
        wanted[0] = float("inf") if k in (4, 11) else wanted[0]
        scaled_step(ours, tops[0], optimisers[0], scalers[0], ids, wanted)
        optimisers[1].zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            other = loss(theirs, tops[1], ids, wanted)
        scalers[1].scale(other).backward()
        scalers[1].step(optimisers[1])
        scalers[1].update()
        assert planted or scalers[0].get_scale() == scalers[1].get_scale()
    assert close(rows(ours), theirs.weight.detach(), 1e-5) == (not planted)
    assert planted or close(tops[0].weight, tops[1].weight, 1e-5)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("planted", [False, True])
def test_the_recipe_for_clipping_and_sums(rule, planted):
    names = recipe("def clipped_step")
    ours, theirs, tops, optimisers = models(rule)
    for k in range(20):
        some = batches(3, scale=10.0 if k % 2 else 0.01)
        before = ours.group.counters()["accesses"]
        names["clipped_step"](ours, tops[0], optimisers[0], some)
        assert ours.group.counters()["accesses"] - before == len(torch.cat([ids for ids, _ in some]).unique())
        optimisers[1].zero_grad()
        for ids, wanted in some:
            (loss(theirs, tops[1], ids, wanted) / 3).backward()
        # Planted: the table's gradient is no part of the norm.
        torch.nn.utils.clip_grad_norm_([*tops[1].parameters()] + ([] if planted else [theirs.weight]), 1.0)
        optimisers[1].step()
    assert close(rows(ours), theirs.weight.detach(), 1e-5) == (not planted)
    assert planted or close(tops[0].weight, tops[1].weight, 1e-5)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("settings", [{}, {"padding_idx": 3}, {"include_last_offset": True, "padding_idx": -1}])
@pytest.mark.parametrize("planted", [False, True])
def test_sums_of_backwards_beside_torch(mode, rule, settings, planted):
    ours, theirs = pair(mode, RULES[rule][0], own={"update": "step", "features": [0, 0]}, **settings)
    optimiser = RULES[rule][1](theirs.parameters())
    for k in range(20):
        held, before = [], rows(ours)
        for _ in range(k % 4):
            ids, offsets = batch()
            offsets = torch.cat([offsets, torch.tensor([len(ids)])]) if settings.get("include_last_offset") else offsets
            weights = [None, None] if mode == "mean" else [torch.linspace(-1, 2, 2 * len(ids)).to(t)[::2].requires_grad_() for t in (torch.float64, torch.float32)]
            held.append(([ours(ids, offsets, weights[0]), theirs(ids, offsets, weights[1])], weights))
            assert planted or close(*held[-1][0], 1e-5)
        for (a, b), weights in held:
            grad = torch.randn(DIM, len(a)).t()
            (a * grad).sum().backward()
            if not planted or a is not held[0][0][0]:  # one backward left out
                (b * grad).sum().backward()
            assert planted or weights[0] is None or not len(weights[0]) or close(weights[0].grad, weights[1].grad, 1e-5)
        counters = ours.group.counters()
        assert torch.equal(rows(ours), before) and counters == ours.group.counters() and ours.step() and not ours._rows._parts
        optimiser.step()
        optimiser.zero_grad()
    assert close(rows(ours), theirs.weight.detach(), 1e-5) == (not planted)


def test_what_a_step_does_and_refuses():
    bag, other = (pair(own={"update": "step", "cache": 0.5, "optimizer": rule})[0] for rule in (hotrow.Adam(0.1), hotrow.SGD(0.1)))
    immediate, ids, before = pair()[0], torch.tensor([[1, 2]]), [rows(bag), rows(other)]
    same = lambda: torch.equal(rows(bag), before[0]) and torch.equal(rows(other), before[1])
    calls = [
        (lambda: hotrow.torch.step([]), "found none"),
        (lambda: hotrow.torch.step([bag, immediate]), "found update='step', update='backward'"),
        (lambda: bag.step(max_norm=float("nan")), "max_norm"),
        (lambda: EmbeddingBag(9, 2, update="later"), "update: wanted"),
        (lambda: EmbeddingBag(9, 2, update="step", grad_scaler=torch.amp.GradScaler("cpu")), "pass it to hotrow.torch.step"),
    ]
    for call, text in calls:
        with pytest.raises(hotrow.InvalidValue) as found:
            call()
        assert text in str(found.value), found.value
    assert bag.step() and bag.group.counters()["accesses"] == 0  # no gradient
    bag(ids).sum().backward()
    bag.zero_grad()
    assert bag.step() and same()
    # One gradient that is not finite: of a bag, of a parameter, and of a sparse one.
    dense, sparse = torch.nn.Linear(2, 2), torch.nn.Embedding(4, 2, sparse=True)
    for bad in range(3):
        for table in (bag, other):
            (table(ids).sum() * (float("inf") if table is other and bad == 0 else 1)).backward()
        dense.weight.grad = torch.full((2, 2), float("nan") if bad == 1 else 1.0)
        sparse(torch.tensor([1, 1])).sum().backward(torch.tensor(float("inf") if bad == 2 else 1.0))
        assert not hotrow.torch.step([bag, other], None, 1.0, [*dense.parameters(), sparse.weight]) and same()
        sparse.weight.grad = None
    # Sparse gradients count once for each row, and a step in between moves no row that a backward needs.
    dense.weight.grad = torch.zeros(2, 2)
    sparse(torch.tensor([1, 1])).sum().backward()
    weights = torch.ones(1, 2, requires_grad=True)
    late = other(ids, None, weights).sum()
    other(ids).sum().backward()
    assert hotrow.torch.step(iter([other]), max_norm=1.0, parameters=(p for p in [dense.weight, sparse.weight]))
    moved = before[1][1] - rows(other)[1]
    assert torch.allclose(moved, torch.full((DIM,), 0.1 / (2 * DIM + 8) ** 0.5), rtol=1e-4)
    assert torch.allclose(sparse.weight.grad.to_dense()[1], torch.tensor(2 / (2 * DIM + 8) ** 0.5))
    late.backward()
    assert torch.allclose(weights.grad[0], before[1][[1, 2]].sum(1), rtol=1e-5, atol=1e-5)
    # One step, of the whole: an error in the second table leaves the first, and the gradients.
    for table in (bag, other):
        table.zero_grad()
        table(ids).sum().backward()
    other.group.close()
    with pytest.raises(hotrow.OrderError):
        hotrow.torch.step([bag, other])
    assert torch.equal(rows(bag), before[0]) and bag.step() and not torch.equal(rows(bag), before[0])


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_forwards_of_a_step(reentrant):
    bag, theirs = pair(own={"update": "step"})
    ids, weights = torch.tensor([[1, 2], [2, 3]]), torch.ones(2, 2, requires_grad=True)
    for table in (bag, theirs):
        torch.utils.checkpoint.checkpoint(lambda w: table(ids, None, w).tanh().square(), weights, use_reentrant=reentrant).sum().backward()
    assert bag.step()
    torch.optim.SGD(theirs.parameters(), 0.05).step()
    assert close(rows(bag), theirs.weight.detach(), 1e-6)


@pytest.mark.parametrize("planted", [False, True])
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
    make = lambda: (np.array([5, 6, 7, 8]), np.array([0, 1, 4]), np.linspace(1, 2, 4, dtype=np.float32))
    bags = pair(own={"update": "step" if update == "step" else "backward"}, include_last_offset=True)
    bags[0].train(update != "frozen")
    start = rows(bags[0])
    for seen in (True, False):
        grads = []
        for bag in bags:
            arrays = make()
            tensors = [torch.from_numpy(array) for array in arrays]
            tensors[2].requires_grad_()
            out = (bag(*tensors) * torch.tensor([[1.0], [3.0]])).sum()
            with torch.no_grad():
                if seen:
                    tensors[changed].copy_(torch.from_numpy(make()[changed].copy()).flip(0) * 0)
                elif bag is bags[0]:  # numpy's writes are none that torch sees
                    arrays[changed][:] = 0
            if seen:
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    out.backward()
                assert torch.equal(rows(bags[0]), start)
                bags[0].discard_pending()
            else:
                out.backward()
                grads.append(tensors[2].grad)
    assert close(*grads, 1e-5) and grads[0].abs().max() > 0
    if update != "frozen":
        assert update == "backward" or bags[0].step()
        torch.optim.SGD(bags[1].parameters(), 0.05).step()
        assert close(rows(bags[0]), bags[1].weight.detach(), 1e-5)


class Both(torch.nn.Module):
    def __init__(self, table, top):
        super().__init__()
        self.table, self.top = table, top

    def forward(self, ids):
        return self.top(self.table(ids)).squeeze(1)


def everywhere(tensor):
    found = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(found, tensor)
    return found


def a_rank(rank, world, folder):
    timeout = timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=timeout)
    torch.set_num_threads(1)
    train, parallel = recipe("def train(")["train"], torch.nn.parallel.DistributedDataParallel
    torch.manual_seed(rank)  # tables, dense parts and batches are other ones on each rank
    with pytest.raises(hotrow.OrderError, match=r"sync\(\).* or sync\(alone=True\)"):
        EmbeddingBag(9, 2)(torch.tensor([[1]]))
    for rule in RULES:
        for planted in (False, True):  # the other ranks' gradients are left out
            ours, theirs, tops, optimisers = models(rule, seed=rank)
            model, some = parallel(Both(theirs, tops[1])), batches(20)
            if planted:
                ours.sync()
                ours.sync(alone=True)
                ours.sync = lambda: None
            train(ours, tops[0], optimisers[0], some)
            for ids, wanted in some:
                optimisers[1].zero_grad()
                (model(ids) - wanted).square().mean().backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimisers[1].step()
            assert close(rows(ours), theirs.weight.detach(), 1e-5) == (not planted)
            assert planted or all(torch.equal(rows(ours), other) for other in everywhere(rows(ours)))
        # Each backward moves the table; one rank's batch is empty now and then.
        ours, theirs, tops, optimisers = models(rule, update="backward", seed=rank)
        model = parallel(theirs)
        ours.sync()
        for k in range(20):
            ids, grad = torch.randint(0, ROWS, (0 if k % 3 == rank else 20, 5)), torch.randn(20, DIM)
            for bag in (ours, model):
                (bag(ids) * grad[: len(ids)]).sum().backward()
            torch.nn.utils.clip_grad_norm_(tops[0].parameters(), 1.0)
            optimisers[1].step()
            optimisers[1].zero_grad()
        assert close(rows(ours), theirs.weight.detach(), 1e-5)
    # Packed rows, cache, states and step: equal bits.
    for update in ("backward", "step"):
        bag = EmbeddingBag(ROWS, DIM, cache=0.1, seed=rank, optimizer=hotrow.Adam(0.1), device="cpu", update=update, state="packed")
        bag.sync(alone=True)
        for count in range(4 + rank):
            bag(*batch()).sum().backward()
            assert update == "backward" or bag.step()
        bag.sync()
        for k in range(5):
            if update == "backward" or k % world != rank:  # a bag without a gradient takes part
                bag(*batch()).square().sum().backward()
            assert update == "backward" or bag.step(max_norm=1.0)
            assert all(torch.equal(rows_, other) for rows_ in [bag.state_dict()["packed"]] for other in everywhere(rows_)), (update, k)
    # Rates apart are named on all ranks; a bad gradient on one rank, and all stay.
    bag.set_learning_rate(0.1 + rank)
    with pytest.raises(hotrow.InvalidValue, match="same learning rate"):
        bag.step()
    bag.set_learning_rate(0.1)
    before, scaler = bag.state_dict()["packed"], torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(bag(*batch()).sum() * (float("nan") if rank else 1.0)).backward()
    assert not bag.step(scaler) and torch.equal(bag.state_dict()["packed"], before)
    scaler.update()
    assert scaler.get_scale() == 4.0
    # Some ranks, of which the last one fails.
    members = [0, world - 1]
    some = dist.new_group(members, timeout=timedelta(seconds=5))
    if rank in members:
        with pytest.raises(hotrow.InvalidValue, match="sync: wanted tables as on rank 0"):
            EmbeddingBag(9 + rank, 2, device="cpu").sync(some)
        bag = EmbeddingBag(9, 2, device="cpu", precision="fp32", update="step")
        bag.sync(some)
        bag(torch.tensor([[1]])).sum().backward()
        before, start = rows(bag), time.monotonic()
        if rank:
            time.sleep(8)
        for _ in range(2):
            with pytest.raises(hotrow.OrderError, match=r"call sync\(\) on all of them again"):
                bag.step()
        assert torch.equal(rows(bag), before) and time.monotonic() - start < 30
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("world", [2, 3])
def test_several_ranks(world, tmp_path):
    torch.multiprocessing.spawn(a_rank, (world, str(tmp_path)), world)
