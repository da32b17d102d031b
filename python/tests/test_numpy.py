"""Groups with numpy alone: right results for whatever fits, an error that names the fault for anything else."""

import os
import re
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import hotrow
from hotrow import Group, InvalidValue, OrderError, RowIndexError


def batch(random, rows, bags, most=9):
    sizes = random.integers(0, most, bags)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)
    return random.integers(0, rows, offsets[-1]).astype(np.uint32), offsets


def bits(array):
    return np.ascontiguousarray(array).view(np.uint32)


class OnDevice:
    """Says of itself that it is on a device of a kind that DLPack numbers."""

    def __init__(self, array, kind):
        self.array, self.kind = array, kind

    def __dlpack_device__(self):
        return (self.kind, 0)

    def __dlpack__(self, **settings):
        return self.array.__dlpack__(**settings)


@pytest.mark.parametrize("precision,optimizer,cache", [("fp32", "adagrad", 0), ("int8", "rowwise", 500), ("int4", "sgd", 200), ("fp16", "adagrad", 64)])
def test_the_same_bits_as_from_rust(random, tmp_path, precision, optimizer, cache):
    """Beside benches/peers.rs, which steps a CpuGroup."""
    program = os.environ.get("HOTROW_PEERS")
    if not program:
        pytest.skip("SKIPPED: HOTROW_PEERS names no program; scripts/nightly python builds it")
    rows, dim, steps = 3000, 24, 5
    rust = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PEERS": "1"})

    def ask(line):
        rust.stdin.write(line + "\n")
        rust.stdin.flush()
        return rust.stdout.readline()

    rules = {"sgd": hotrow.SGD(0.05), "adagrad": hotrow.AdaGrad(0.05), "rowwise": hotrow.RowWiseAdaGrad(0.05)}
    ask(f"group t rows={rows} dim={dim} precision={precision} optimizer={optimizer} cache={cache} policy=lru threads=2")
    group = Group([rows], dim, precision=precision, cache_rows=cache, optimizer=rules[optimizer], init=hotrow.Uniform(-0.1, 0.1), device="cpu")
    before = group.read_rows(np.arange(rows))
    for k in range(steps):
        indices, offsets = batch(random, rows, 50)
        np.concatenate([[50], offsets, indices]).astype("<u4").tofile(tmp_path / str(k))
        ask(f"batch t {tmp_path / str(k)}")
        out = group.forward(indices, offsets)
        grad = (np.arange(out.size) * 37 % 101).astype("f4").reshape(out.shape) / np.float32(64) - np.float32(0.75)
        group.backward(grad)
    ask("run t step 1")
    np.arange(rows, dtype="<u4").tofile(tmp_path / "rows")
    ask(f"rows t {tmp_path / 'rows'} {tmp_path / 'out'}")
    rust.kill()
    theirs, ours = np.fromfile(tmp_path / "out", "<f4").reshape(rows, dim), group.read_rows(np.arange(rows))
    assert np.array_equal(bits(theirs), bits(ours))
    # The comparison sees a single step.
    assert not np.array_equal(before, ours)
    group.forward([0], [0, 1])
    group.backward(np.ones((1, dim), "f4"))
    assert not np.array_equal(bits(theirs), bits(group.read_rows(np.arange(rows))))


def test_rows_of_bags_are_summed(random):
    group = Group([1000, 50], 8, precision="fp32", init=hotrow.Normal(), device="cpu")
    indices, offsets = batch(random, 50, 6)
    wanted = group.forward_frozen(indices, offsets)
    sums = group.read_rows(np.arange(1050))
    for bag in range(6):
        rows = indices[offsets[bag] : offsets[bag + 1]].astype(int) + (1000 if bag >= 3 else 0)
        assert np.allclose(wanted[bag], sums[rows].sum(0), atol=1e-5)
    skips = Group([50], 8, out_of_range="skip", init=1.0, device="cpu")
    assert skips.forward_frozen(np.array([1, -1, 2**40, 50, 2]), [0, 5]).tolist() == [[2.0] * 8]
    assert skips.forward_frozen(np.array([1, -1], np.int32), [0, 2]).tolist() == [[1.0] * 8]
    for mixed in ([np.int64(1), np.uint64(2)], np.array([1, np.int8(2)], object)):  # numpy's common type of the first is float64
        assert np.array_equal(group.forward_frozen(mixed, [0, 2, 2])[0], sums[1] + sums[2])
    assert group.forward_frozen([], [0, 0, 0]).tolist() == [[0.0] * 8] * 2


def test_gradients_and_weights(random):
    made = [Group([100], 4, precision="fp32", optimizer=hotrow.SGD(1.0), device="cpu") for _ in range(3)]
    grad = random.integers(-8, 8, (2, 4)).astype(np.float32)
    for group, given in zip(made, (grad, grad.tolist(), np.asfortranarray(grad))):
        group.forward([1, 2, 3], [0, 2, 3], weights=[0.5, 2.0, -1.0])
        group.backward(given)
        assert np.array_equal(group.read_rows([1, 2, 3, 4]), [-0.5 * grad[0], -2 * grad[0], grad[1], 0 * grad[1]])
    group.forward([1, 2], [0, 2], [1.0, 1.0])
    columns = Group([2], 2, precision="fp32", values=np.asfortranarray([[1, 2], [3, 4]], np.float32), device="cpu")
    assert columns.read_rows([0, 1]).tolist() == [[1, 2], [3, 4]]
    found = group.weight_gradient([1, 2], [0, 2], np.ones((1, 4), np.float32))
    assert np.allclose(found, group.read_rows([1, 2]).sum(1))
    group.discard_pending()


@pytest.mark.parametrize(
    "call,error,text",
    [
        (lambda g: g.forward([-1], [0, 1]), IndexError, "found -1 at position 0"),
        (lambda g: g.forward(np.array([5, -3], np.int32), [0, 2]), IndexError, "found -3 at position 1"),
        (lambda g: g.forward([2**32], [0, 1]), IndexError, "found 4294967296"),
        (lambda g: g.forward(np.array([2**63], np.uint64), [0, 1]), IndexError, "found 9223372036854775808"),
        (lambda g: g.forward([100], [0, 1]), IndexError, "below 100, found 100"),
        (lambda g: g.forward([1], [0, 1], out=[[np.float32(0)] * 8]), ValueError, "an array"),
        (lambda g: g.forward([1], [0, 1], out=np.empty(33, "u1")[1:].view("f4").reshape(1, 8)), ValueError, "aligned"),
        (lambda g: g.forward([1], [0, 1], (a := np.ones((1, 8), "f4"))[0, :1], OnDevice(a, 1)), ValueError, "memory apart"),
        (lambda g: g.forward([1], [0, 1], out=np.empty((2, 8), "f4")), ValueError, "shape (1, 8), found shape (2, 8)"),
        (lambda g: g.forward([1], [0, 1], out=np.empty((1, 8))), ValueError, "found float64"),
        (lambda g: g.forward([1], [0, 1], out=np.empty((1, 8), ">f4")), ValueError, "found >f4"),
        (lambda g: g.forward([1, 2], [0, 1, 2], out=np.empty((2, 16), "f4")[:, ::2]), ValueError, "C order"),
        (lambda g: g.forward([1], [0, 1], out=np.frombuffer(bytes(32), "f4").reshape(1, 8)), ValueError, "alone uses"),
        (lambda g: g.backward(np.ones((1, 8), "f4")), RuntimeError, "forward"),
        (lambda g: g.backward(np.ones((8, 1), "f4")), ValueError, "shape (n, 8), found shape (8, 1)"), (lambda g: g.read_rows([100]), IndexError, "100"),
        (lambda g: g.write_rows([1], np.ones((2, 8), "f4")), ValueError, "wanted 8 entries, found 16"),
        (lambda g: g.write_rows([1], np.ones((1, 8))), ValueError, "float64"), (lambda g: g.set_learning_rate(float("nan")), ValueError, "lr"),
        (lambda g: g.load("/no/such/file"), OSError, "/no/such/file"), (lambda g: g.save("/no/such/folder/file"), OSError, "/no/such/folder/file"),
        (lambda g: g.write_packed(0, np.zeros((1, 3), "u1")), ValueError, "uint8 of shape"),
        (lambda g: g.write_packed(99, g.packed(0, 2)), IndexError, "packed: wanted at most 100 rows, found 2 from 99 on"),
        (lambda g: g.packed(1, 2**32 - 1), IndexError, "at most 100 rows"), (lambda g: g.read_codes(1), IndexError, "table: wanted 0 to 0, found 1"),
        (lambda g: Group([0], 8), ValueError, "tables"), (lambda g: Group([10], 0), ValueError, "dim"), (lambda g: Group([10], -8), ValueError, "dim"),
        (lambda g: hotrow.plan_memory([10], 8, indices=-1), ValueError, "indices"),
        (lambda g: Group([1], 8, values=np.full((1, 8), np.nan, "f4")), OSError, "values, row 0: wanted finite"),
        (lambda g: (g.forward([1], [0, 1]), g.forward([1], [0, 1])), RuntimeError, "; forward_only for a group"),
        (lambda g: (g.forward([1], [0, 1]), g.backward(np.ones((2, 8), "f4"))), ValueError, "grad: wanted 8 entries, found 16; pass an array of 8"),
        (lambda g: (g.save("::source"), Group([9], 8).load("::source")), OSError, "::source, tables: wanted 9 at entry 0, found"),
        (lambda g: g.load(__file__), OSError, "the file is of another format"), (lambda g: Group([2**31, 2**31 - 5], 4096), MemoryError, "bytes"),
        (lambda g: g.write_codes(0, g.read_codes()._replace(codes=np.zeros((100, 8), "i1"))), ValueError, "codes: wanted uint8, found int8"),
        (lambda g: g.packed(-1, 2), ValueError, "first: wanted a whole number, 0 or more, of 32 bits, found -1"),
        (lambda g: g.write_packed(-1, g.packed(0, 1)), ValueError, "first: wanted a whole number"),
        (lambda g: g.set_learning_rate("x"), ValueError, "lr: wanted a number, found x"),
        (lambda g: g.write_rows([1], [[1e39] * 8]), ValueError, "values: wanted numbers within"),
        (lambda g: (g.save(p := Path("group")), p.write_bytes(p.read_bytes().replace(b"U32", b"U`2", 1)), g.load(p)), OSError, "found a damaged header; the file is damaged"),
        (lambda g: hotrow.simulate([5], rows=5), IndexError, "below 5, found 5"),
        (lambda g: hotrow.simulate([-1], rows=5), IndexError, "found -1 at position 0"),
        *[(lambda g, given=given: Group([10], 8, **given), ValueError, text) for given, text in (
            (dict(init="uniform"), "hotrow.Uniform"), (dict(precision="int3"), "precision: wanted fp32, fp16, int8, int4, int2, found int3"),
            (dict(cache_row=3), "found cache_row"), (dict(optimizer=hotrow.SGD(float("inf"))), "finite"),
            (dict(optimizer=hotrow.SGD(0.1, momentum=0.9)), "found momentum"), (dict(optimizer=object()), "optimizer: wanted hotrow.SGD(lr)"),
            (dict(seed=-1), "seed"), (dict(device="cuda"), "auto, cpu or gpu, found cuda"),
            (dict(values=np.ones((9, 8), "f4")), "values, the source of all rows: wanted 80"),
            (dict(cache_rows="many"), "cache_rows: wanted a whole number from 0 to 4294967295, found \"many\""),
            (dict(forward_only=1), "forward_only: wanted True or False, found 1"), (dict(init={"uniform": 3}), "hotrow.Uniform"),
            (dict(padding=True), "padding: wanted a list, found True"), (dict(ways=0), "ways: wanted 1 to 1024, found 0; change this setting"),
            (dict(optimizer=hotrow.SGD(None)), "optimizer, lr: wanted a number, found None"),
            (dict(optimizer=hotrow.SGD(True)), "optimizer, lr: wanted a number, found True"),
            (dict(optimizer=hotrow.SGD(10**400)), "optimizer, lr: wanted a number"), (dict(init=10**400), "init: wanted a number"),
            (dict(optimizer=hotrow.Adam(0.1, (0.9,))), "betas: wanted two numbers, found (0.9,)"),
        )],
        *[(lambda g, given=given: g.forward(*given), ValueError, text) for given, text in (
            ((np.array([1.0]), [0, 1]), "whole numbers, found float64"), (([True], [0, 1]), "whole numbers, found bool"), ((["a"], [0, 1]), "whole numbers"),
            (([[1]], [0, 1]), "one dimension, found shape (1, 1)"), ((1, [0, 1]), "one dimension, found shape ()"), (([1], []), "offsets"),
            (([1], [0, 2]), "offsets"), (([1, 2], [0, 2, 1, 2]), "offsets"), (([1], [0, 1], [1.0, 2.0]), "weights"),
            (([1], [0, 1], np.ones(1)), "found float64"), ((OnDevice(np.array([1]), 2), [0, 1]), "on a device (DLPack's type 2)"),
            (([1], [0, 1], memoryview(np.ones(1))), "found float64"), ((np.ma.masked_array([1], [True]), [0, 1]), "masked"),
            (([1], [0, 1], [1e300]), "weights: wanted numbers within float32's 3.4e38, found 1e300"),
            (([1, 2.5, 2**63], [0, 3]), "indices: wanted whole numbers of 64 bits, found 2.5"),
            ((np.array([1, True], object), [0, 2]), "indices: wanted whole numbers of 64 bits, found True"),
        )],
        *[(lambda g, given=given: hotrow.simulate([1], **given), ValueError, text) for given, text in (
            (dict(rows=True), "rows: wanted a whole number"), (dict(cache_percent="5"), "cache_percent: wanted a number, found '5'"),
            (dict(policy=None), "policy: wanted lru, lfu, window or best, or some of them, found None"), (dict(policy=[3]), "policy: wanted lru"),
            (dict(policy="arc"), "policy"), (dict(cache_percent=0), "0"), (dict(batch=0), "batch"), (dict(ways=-1), "ways"),
        )],
    ],  # fmt: skip
)
def test_bad_input_is_named(call, error, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    group = Group([100], 8, device="cpu", init=0.5)
    with pytest.raises(error) as found:
        call(group)
    assert isinstance(found.value, hotrow.Error) and text in str(found.value), repr(found.value)
    assert not re.search(r"\w::|\b(Config|struct|enum|slice|[uf](32|64)|usize|sequence|map|Some)\b", str(found.value)), "words of Rust"
    # Nothing has changed.
    group.discard_pending()
    assert not group.pending and (group.read_rows([1, 99]) == 0.5).all()


def test_out_is_the_callers_own(random):
    group = Group([100], 8, precision="fp32", init=hotrow.Normal(), device="cpu")
    indices, offsets = batch(random, 100, 7)
    wanted, out = group.forward_frozen(indices, offsets), np.full((7, 8), np.nan, np.float32)
    assert group.forward_frozen(indices, offsets, out=out) is out
    group.close()
    del group
    assert np.array_equal(out, wanted)


def test_a_closed_group_is_refused():
    with Group([10], 4, device="cpu") as group:
        assert "10 rows x 4 on cpu" in repr(group)
    for call in (lambda: group.forward([1], [0, 1]), lambda: group.memory(), lambda: group.config):
        with pytest.raises(OrderError, match="close"):
            call()
    group.close()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8", "int4", "int2"])
def test_codes_are_the_rows(random, precision):
    values = random.standard_normal((70, 12)).astype(np.float32)
    group = Group([20, 50], 12, precision=precision, cache_rows=32, optimizer=hotrow.AdaGrad(0.1), values=values, device="cpu")
    group.forward([3, 3], [0, 1, 2])
    group.backward(np.ones((2, 12), np.float32))
    group.reset()  # until then the cache has row 23 in FP32
    codes = group.read_codes(1)
    wanted, width = group.read_rows(np.arange(20, 70)), {"int8": 1, "int4": 2, "int2": 4}.get(precision)
    if width is None:
        assert np.array_equal(codes.codes.astype("f4"), wanted) and codes.scale is None
    else:
        each = np.stack([codes.codes >> (8 // width * k) & (2 ** (8 // width) - 1) for k in range(width)], 2).reshape(50, -1)[:, :12]
        assert np.array_equal(each * codes.scale[:, None] + codes.bias[:, None], wanted)
        with pytest.raises(InvalidValue, match="finite"):
            group.write_codes(1, codes._replace(scale=codes.scale * np.inf))
        with pytest.raises(InvalidValue, match="scale"):
            group.write_codes(1, codes._replace(scale=None))
    other = Group([20, 50], 12, precision=precision, cache_rows=32, optimizer=hotrow.AdaGrad(0.1), device="cpu")
    assert not np.array_equal(other.read_rows(np.arange(20, 70)), wanted)
    other.write_codes(1, codes)
    assert np.array_equal(other.read_rows(np.arange(20, 70)), wanted) and not other.read_rows(np.arange(20)).any()
    with pytest.raises(InvalidValue, match="codes: wanted 50 rows"):
        group.write_codes(1, codes._replace(codes=codes.codes[:49]))


def test_int4x32_is_read_alone(random):
    settings = dict(precision="int4x32", forward_only=True, cache_rows=32, device="cpu")
    values = random.standard_normal((70, 64)).astype(np.float32)
    filled, other = (Group([20, 50], 64, values=given, **settings) for given in (values, None))
    codes, wanted = filled.read_codes(1), filled.read_rows(np.arange(20, 70))
    each = np.stack([codes.codes & 15, codes.codes >> 4], 2).reshape(50, 2, 32)
    found = each * codes.scale[..., None].astype("f4") + codes.bias[..., None].astype("f4")
    assert np.array_equal(found.reshape(50, 64), wanted) and abs(wanted - values[20:]).max() < 0.3
    other.write_codes(1, codes)
    assert np.array_equal(other.read_rows(np.arange(20, 70)), wanted)
    for name, wrong in ("finite", codes.scale * np.float16(np.inf)), ("0 or more", -codes.scale), ("float16", codes.scale.astype("f4")):
        with pytest.raises(InvalidValue, match=name):
            other.write_codes(1, codes._replace(scale=wrong))
    with pytest.raises(InvalidValue, match="forward_only: wanted true with int4x32"):
        Group([2], 64, **settings | dict(forward_only=False))


def test_a_searched_range_loses_less(random):
    values = random.laplace(size=(50, 64)).astype("f4")
    for precision, least in ("int2", 0.7), ("int4", 0.95), ("int4x32", 0.95):
        settings = dict(precision=precision, device="cpu", forward_only=True)
        found = [Group([50], 64, values=values, values_range=range, **settings).read_rows(np.arange(50)) for range in ("whole", "searched")]
        whole, searched = (((values - rows).astype("f8") ** 2).sum() for rows in found)
        assert searched < least * whole
    with pytest.raises(InvalidValue, match="wanted values beside"):
        Group([50], 64, precision="int4", values_range="searched")
    with pytest.raises(InvalidValue, match="'whole' or 'searched'"):
        Group([50], 64, values=values, values_range="all")
    with pytest.raises(InvalidValue, match="write_rounding: wanted nearest"):
        Group([50], 64, values=values, values_range="searched", write_rounding="stochastic", precision="int4", device="cpu")


def test_a_saved_group_goes_on_with_the_same_bits(random, tmp_path):
    group = Group([300], 8, precision="int8", cache_rows=64, optimizer=hotrow.Adam(0.05), init=hotrow.Uniform(-1, 1), seed=7, device="cpu")
    batches = [batch(random, 300, 20) for _ in range(6)]

    def steps(of, some):
        for indices, offsets in some:
            of.backward(of.forward(indices, offsets))
        return bits(of.read_rows(np.arange(300)))

    steps(group, batches[:3])
    group.save(tmp_path / "saved")
    again = Group.open(tmp_path / "saved", device="cpu")
    assert {**again.config, "init": None} == {**group.config, "init": None}  # a file has no initial values
    half = bits(again.read_rows(np.arange(300)))
    assert np.array_equal(steps(again, batches[3:]), steps(group, batches[3:])) and not np.array_equal(half, bits(group.read_rows(np.arange(300))))
    with pytest.raises(hotrow.FileError):
        Group([300], 9, device="cpu").load(tmp_path / "saved")


def test_shared_tables(random, tmp_path):
    make = lambda: hotrow.SharedGroup([1000, 500], 8, 256, chunk=4, optimizer=hotrow.SGD(0.5), device="cpu")
    group = make()
    before = group.read_rows([1, 2])
    group.forward([1, 2], [0, 1, 2])
    group.backward(np.ones((2, 8), np.float32))
    assert not np.array_equal(group.read_rows([1, 2]), before)
    group.save(tmp_path / "shared")
    again = make()
    again.load(tmp_path / "shared")
    assert np.array_equal(again.read_rows(np.arange(1500)), group.read_rows(np.arange(1500)))
    for call in (lambda: group.write_rows([1], np.ones((1, 8), "f4")), group.reset, lambda: group.packed(0, 1)):
        with pytest.raises(hotrow.Error, match="Group"):
            call()


def test_plans_agree_with_groups(random):
    settings = dict(precision="int4", cache_rows=320, policy="lfu", optimizer=hotrow.AdaGrad(0.1))
    group = Group([5000], 16, device="cpu", **settings)
    planned, found = hotrow.plan_memory([5000], 16, **settings), group.memory()
    same = ("payload", "scales and biases", "cache weights", "tags", "row frequencies")
    assert [planned[name] for name in same] == [found[name] for name in same] and planned["payload"] == 5000 * 8
    ids = np.minimum(random.zipf(1.2, 20_000), 5000) - 1
    for policy in ("lru", "lfu", "window"):
        group = Group([5000], 1, cache_rows=512, policy=policy, device="cpu")
        for first in range(0, len(ids), 500):
            group.forward(ids[first : first + 500], [0, 500])
            group.discard_pending()
        (played,) = hotrow.simulate(ids, rows=5000, cache_percent=10, policy=policy, batch=500)
        assert played["hits"] == group.counters()["hits"] > 0, policy
    best, lru = hotrow.simulate(ids, cache_percent=1, policy=("best", "lru"))
    assert best["hit_rate"] > lru["hit_rate"] > 0


def hits(trace, **settings):
    (found,) = hotrow.simulate(trace, cache_percent=100, policy="lru", **settings)
    return found["hits"], found["accesses"]


def test_traces_of_integers_stay_apart(random):
    """A cache of all ids misses each once, so that hits tell how many ids differ."""
    low = random.integers(0, 2**63, 500, dtype="u8")
    # Neighbours, which float64 takes for one.
    mixed = [int(id) for id in low[:250]] + [2**63 + k for k in range(250)]
    as_array = np.array(mixed, "u8")
    for trace in (mixed, tuple(mixed), np.array(mixed, object), as_array, as_array.astype(">u8"), range(500), as_array.view("i8")):
        assert hits(trace) == (0, 500), type(trace)
    assert hits([2**63, -(2**63), 2**64 - 1, -1, np.uint64(7), np.int8(7), 7]) == (4, 7)
    assert hits(np.array([-1, 3, -1], "i2")) == hits(memoryview(np.array([9, 3, 9], "u1"))) == (1, 3)
    assert hits([3, 1, 3], rows=4) == hits(np.array([3, 1, 3], object), rows=4) == (1, 3)
    assert float(2**63) == float(2**63 + 1)  # so numpy would merge them
    refused = [
        [1.0], [1, 2.5], [float("nan")], [True], [1, True], [1, np.True_], [1j], ["a"], [b"a"], [None], [2**64], [-(2**63) - 1], [[1], [2]], [[1], [2, 3]],
        np.array([1.0], "f2"), np.array([True]), np.array([1j]), np.array(["1"]), np.array(["2020"], "M8[D]"), np.array([1], "m8[s]"),
        np.array([1, 2.0], object), np.array([(1,)], [("id", "i4")]), np.array([[1]]), np.array(1), np.ma.array([1]), 1, 1.5, "12", b"12", {1, 2}, {1: 2}, None, iter([1]),
    ]  # fmt: skip
    with suppress(ImportError):
        import torch

        refused += [torch.ones(2, dtype=int, device="meta"), torch._neg_view(torch.ones(2)), torch.ones(2).to_sparse()]
    for trace in refused:
        for rows in (None, 5):
            with pytest.raises(TypeError, match="trace: wanted integers") as error:
                hotrow.simulate(trace, rows=rows)
            assert isinstance(error.value, hotrow.InvalidValue), trace


def test_another_thread_that_writes_to_the_ids_causes_no_fault():
    """A call sees them as they were at one moment. Ids that were read where they lie caused a panic in four of five runs of this."""
    group = Group([1000], 8, cache_rows=320, optimizer=hotrow.AdaGrad(0.1), device="cpu")
    ids, offsets, stop = np.zeros(20_000, np.uint32), np.arange(20_001, dtype=np.uint32), threading.Event()
    fine, grad, refused = offsets.copy(), np.ones((20_000, 8), np.float32), 0

    def scribble():
        while not stop.is_set():
            for ids[:], offsets[1:-1] in ((4_000_000_000, 5), (3, fine[1:-1])):
                pass

    threading.Thread(target=scribble, daemon=True).start()
    for _ in range(800):
        try:
            group.forward(ids, offsets)
            group.weight_gradient(ids, offsets, grad)
        except hotrow.Error as error:
            refused += 1
            assert isinstance(error, (IndexError, InvalidValue)) or "last forward" in str(error), error
        if group.pending:
            group.backward(grad)
    stop.set()
    group.forward([1], [0, 1])
    assert 0 < refused


def test_threads_take_turns_and_python_goes_on(random):
    group = Group([200_000], 64, precision="fp32", optimizer=hotrow.SGD(1.0), device="cpu")
    indices, offsets = np.arange(200_000, dtype=np.uint32), np.arange(200_001, dtype=np.uint32)
    counted, stop, errors = [0], threading.Event(), []

    def look():
        try:
            for _ in range(5):
                assert not group.forward_frozen(indices, offsets).any()
        except BaseException as error:
            errors.append(error)

    def count():
        while not stop.wait(1e-4):
            counted[0] += 1

    threads, counter = [threading.Thread(target=look) for _ in range(4)], threading.Thread(target=count)
    for thread in (*threads, counter):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    counter.join()
    assert not errors and counted[0] > 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_is_refused_by_name():
    group = Group([100_000], 64, device="cpu")
    group.forward_frozen(np.arange(100_000), [0, 100_000])
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: group.forward([1], [0, 1]), lambda: Group([10], 4, device="cpu")):
            try:
                call()
            except OrderError as error:
                refused += "fork" in str(error)
        del group
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert group.forward_frozen([1], [0, 1]).shape == (1, 64)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer here")
def test_a_keyboard_interrupt_comes_between_steps():
    group = Group([1000], 8, precision="fp32", optimizer=hotrow.SGD(0.0), device="cpu")
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for k in range(500):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + 1e-6 * k)
                while True:
                    # Lists are converted by numpy, where an interrupt may come, too.
                    group.forward([1], [0, 1])
                    group.backward([[1.0] * 8])
            group.discard_pending()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    group.forward([1], [0, 1])
    group.backward(np.ones((1, 8), np.float32))


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc here")
def test_memory_does_not_grow(random):
    group = Group([1000], 16, cache_rows=64, optimizer=hotrow.AdaGrad(0.1), device="cpu")
    batches = [batch(random, 1000, 10) for _ in range(10)]

    def steps(count):
        for k in range(count):
            group.backward(group.forward(*batches[k % 10]))

    steps(5_000)
    before = resident()
    steps(100_000)
    assert resident() - before < 2 << 20


def test_a_gpu_gives_the_same_bits(random, gpu):
    made = [
        Group([500], 12, precision="int8", cache_rows=64, policy="lfu", optimizer=hotrow.RowWiseAdaGrad(0.05), init=hotrow.Uniform(-1, 1), device=device)
        for device in ("cpu", gpu)
    ]
    assert made[0].device == "cpu" != made[1].device
    for _ in range(4):
        indices, offsets = batch(random, 500, 30)
        outputs = [group.forward(indices, offsets) for group in made]
        assert np.array_equal(bits(outputs[0]), bits(outputs[1]))
        for group in made:
            group.backward(np.round(outputs[0] * 64) / np.float32(64))
    assert made[0].counters() == made[1].counters()
    rows = [bits(group.read_rows(np.arange(500))) for group in made]
    assert np.array_equal(*rows)
    made[1].forward([7], [0, 1])
    made[1].backward(np.ones((1, 12), np.float32))
    assert not np.array_equal(rows[0], bits(made[1].read_rows(np.arange(500))))


def test_every_call_explains_itself():
    for thing in [hotrow, Group, hotrow.SharedGroup, hotrow.simulate, hotrow.plan_memory, *(getattr(hotrow, name) for name in hotrow.__all__)]:
        assert thing.__doc__ and len(thing.__doc__) > 10, thing
    for name in dir(Group):
        if not name.startswith("_"):
            assert getattr(Group, name).__doc__, name


def step_error(weights, stored):
    """The error of rows in int8, root mean square, in steps of their codes: 0.29 to the nearest, 0.41 at random."""
    steps = (weights.max(1) - weights.min(1)) / 255
    return float(np.sqrt((((stored - weights) / steps[:, None]) ** 2).mean()))


@pytest.mark.parametrize("settings,wanted", [({}, 0.289), ({"rounding": "nearest"}, 0.289), ({"write_rounding": "stochastic"}, 0.408)])
def test_weights_of_a_user_s_own_are_rounded_to_nearest(random, settings, wanted):
    weights = random.uniform(-1, 1, (300, 64))
    values = weights.astype("f4")
    filled = Group([300], 64, precision="int8", values=values, device="cpu", **settings)
    written = Group([300], 64, precision="int8", device="cpu", **settings)
    written.write_rows(np.arange(300), values)
    for group in (filled, written):
        # The lowest and highest weight of a row are exact: 2 of 64.
        assert abs(step_error(weights, group.read_rows(np.arange(300))) - wanted) < 0.015
        assert group.config["write_rounding"] == settings.get("write_rounding", "nearest")
    with pytest.raises(InvalidValue, match="write_rounding"):
        Group([3], 4, write_rounding="up")


def test_ftrl_and_lion_are_the_formulas(random):
    f = np.float32
    lr, l1, l2, beta = f(0.1), f(4), f(0.25), f(1)
    group = Group([20], 16, precision="fp32", optimizer=hotrow.Ftrl(0.1, l1=4, l2=0.25), init=hotrow.Uniform(-1, 1), cache_rows=10, device="cpu")
    w, n = group.read_rows(np.arange(20)), np.zeros((20, 16), f)
    y_of = lambda w, n: np.where(w == 0, f(0), -(w * ((beta + np.sqrt(n)) + lr * l2) + np.copysign(lr * l1, w)))
    y, zeros = y_of(w, n), 0
    for k in range(40):
        g = (random.standard_normal((20, 16)) * random.integers(0, 2, (20, 16))).astype(f)
        group.forward(np.arange(20), np.arange(21))
        group.backward(g)
        m = n + g * g
        moved = y + (lr * g - (np.sqrt(m) - np.sqrt(n)) * w)
        a = np.abs(moved) - lr * l1
        new = np.where(a > 0, -(np.copysign(a, moved) / ((beta + np.sqrt(m)) + lr * l2)), f(0))
        w, n, y = (np.where(g == 0, old, now) for old, now in ((w, new), (n, m), (y, moved)))
        assert np.array_equal(group.read_rows(np.arange(20)), w)
        zeros += (w == 0).sum()
        if k == 20:
            w[3:9] = f(0.5)
            group.write_rows(np.arange(3, 9), w[3:9])
            y[3:9] = y_of(w[3:9], n[3:9])
    assert 0 < zeros < 40 * w.size  # on their way weights were 0, and others were not

    group = Group([20], 4, precision="fp32", optimizer=hotrow.Lion(0.01, weight_decay=0.1), init=hotrow.Uniform(-1, 1), device="cpu")
    w, m = group.read_rows(np.arange(20)), np.zeros((20, 4), f)
    for _ in range(40):
        g = random.standard_normal((20, 4)).astype(f)
        group.forward(np.arange(20), np.arange(21))
        group.backward(g)
        d = g - m
        w = w - (f(0.01) * np.sign(m + (f(1) - f(0.9)) * d) + f(0.01) * f(0.1) * w)
        m = m + (f(1) - f(0.99)) * d
        assert np.array_equal(group.read_rows(np.arange(20)), w)
    for wrong, message in (
        (hotrow.Ftrl(0.1, l1=-1), "l1: wanted a finite number, 0 or more"), (hotrow.Ftrl(0.1, beta=0), "beta"), (hotrow.Lion(0.1, beta2=1), "beta2"),
        (hotrow.Ftrl(0.1, weight_decay=0.1, decoupled=True), "decoupled"),
    ):  # fmt: skip
        with pytest.raises(hotrow.InvalidValue, match=message):
            Group([10], 4, optimizer=wrong, device="cpu")
    with pytest.raises(hotrow.InvalidValue, match="state: wanted fp32 with ftrl"):
        Group([10], 4, optimizer=hotrow.Ftrl(0.1), state="int8", device="cpu")


ADAGRAD = """fn rule(e: Element, n: Numbers) -> Element {
    let sum = e.first + e.g * e.g;
    return Element(e.g, descend(e.w, n.lr * e.g / (sqrt(sum) + n.hyper.x)), sum, e.second);
}"""


def adagrad(n, g, w, s):
    s = s + g * g
    by = np.float32(n.lr) * g / (np.sqrt(s) + np.float32(n.eps))
    return w - (by + np.float32(n.lr) * np.float32(n.decay) * w if n.decay else by), s


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("precision,cache", [("fp32", 0), ("int8", 40), ("fp16", 200)])
def test_a_rule_of_ones_own_has_the_bits_of_the_library(random, precision, cache, device, tmp_path):
    settings = dict(precision=precision, cache_rows=cache, init=hotrow.Uniform(-1, 1), device=device)
    more = dict(weight_decay=0.01, decoupled=True, clip_value=1.5)
    calls = []

    def step(n, g, w, *states):
        calls.append((threading.get_ident(), n.t, g.shape, w.dtype))
        return adagrad(n, g, w, *states)

    make = lambda function=step: Group([200], 8, optimizer=hotrow.Rule("mine", ["sum"], ADAGRAD, function, lr=0.05, hyper={"eps": 1e-8}, **more), **settings)
    try:
        own, library = make(), Group([200], 8, optimizer=hotrow.AdaGrad(0.05, **more), **settings)
    except hotrow.DeviceError as error:
        pytest.skip(f"SKIPPED: {error}")
    for _ in range(5):
        indices, offsets = batch(random, 200, 30)
        indices, offsets = indices[: offsets[30]], offsets[:31]
        grad = random.standard_normal((30, 8)).astype(np.float32)
        for group in (own, library):
            group.forward(indices, offsets)
            group.backward(grad)
        assert np.array_equal(bits(own.read_rows(np.arange(200))), bits(library.read_rows(np.arange(200))))
    if device == "cpu":
        assert [call[1] for call in calls] == [1, 2, 3, 4, 5]
        assert {call[0] for call in calls} == {threading.get_ident()} and all(call[3] == np.float32 for call in calls)
    own.save(tmp_path / "own")
    again = make()
    again.load(tmp_path / "own")
    assert np.array_equal(again.read_rows(np.arange(200)), own.read_rows(np.arange(200)))
    with pytest.raises(hotrow.InvalidValue, match="rule of your own"):
        Group.open(tmp_path / "own", device=device)
    with pytest.raises(hotrow.FileError, match="optimizer|rule"):
        library.load(tmp_path / "own")


def test_a_rule_that_fails_moves_no_row():
    outcome = [None]

    def step(n, g, w, s):
        return outcome[0](n, g, w, s)

    def oops(*_):
        raise KeyError("oops")

    make = lambda **more: hotrow.Rule("mine", ["sum"], ADAGRAD, step, hyper={"eps": 1e-8}, **more)
    group = Group([20], 4, precision="fp32", optimizer=make(), init=1.0, device="cpu")
    before = group.read_rows(np.arange(20))
    group.forward([1, 2], [0, 2])
    for wrong, message in (
        (oops, "oops"), (lambda n, g, w, s: w, "wanted 2 arrays"), (lambda n, g, w, s: (w[:1], s), r"shape \(2, 4\)"), (lambda n, g, w, s: (w.astype("f8"), s), "float32"),
        (lambda n, g, w, s: group.counters(), "in the rule's step"), (lambda n, g, w, s: (w.T, s), "shape"), (lambda n, g, w, s: None, "array"), (lambda n, g, w, s: (w.ravel(), s), "shape"),
    ):  # fmt: skip
        outcome[0] = wrong
        with pytest.raises(hotrow.InvalidValue, match=message):
            group.backward(np.ones((1, 4), "f4"))
        assert np.array_equal(group.read_rows(np.arange(20)), before) and group.pending
    # Any order of memory: the values are those that numpy shows.
    outcome[0] = lambda n, g, w, s: (np.asfortranarray(w + [[1, 2, 3, 4]]).astype("f4", order="F"), np.asfortranarray(s))
    group.backward(np.ones((1, 4), "f4"))
    assert group.read_rows([1, 2]).tolist() == [[2, 3, 4, 5]] * 2
    # First states are of the initial weights.
    group = Group([20], 4, precision="fp32", optimizer=make(first=lambda w: w * 3), init=2.0, device="cpu")
    outcome[0] = lambda n, g, w, s: (s, s)
    group.forward([5], [0, 1])
    group.backward(np.ones((1, 4), "f4"))
    assert group.read_rows([4, 5]).tolist() == [[2] * 4, [6] * 4]
    for wrong, message in (
        (lambda: hotrow.Rule("a", [], ADAGRAD, step, hyper={"decay": 1}), "decay"), (lambda: hotrow.Rule("a b", [], ADAGRAD, step), "name"), (lambda: hotrow.Rule("a", ["total"], ADAGRAD, step), "total"),
        (lambda: hotrow.Rule("a", [], "fn rule() {}", step), "line 1"), (lambda: hotrow.Rule("a", [], ADAGRAD, 3), "a function"),
        (lambda: hotrow.Rule("a", ["sum"] * 3, ADAGRAD, step), "states"), (lambda: hotrow.Rule("a", [], ADAGRAD, step, hyper={str(i): 1 for i in range(5)}), "hyper"),
        (lambda: hotrow.Rule("a", ["sum"], ADAGRAD.replace("descend(e.w, ", "(e.w - "), step, weight_decay=0.1, decoupled=True), "decoupled"),
    ):  # fmt: skip
        with pytest.raises(hotrow.InvalidValue, match=message):
            Group([10], 4, optimizer=wrong(), device="cpu")
    with pytest.raises(hotrow.InvalidValue, match="optimizer"):
        hotrow.SharedGroup([100], 4, 64, chunk=4, optimizer=make(), device="cpu")
