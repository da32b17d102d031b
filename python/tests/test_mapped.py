"""One table in groups of different precisions, beside one group of FP32."""

import numpy as np
import pytest
from hotrow import SGD, Group, InvalidType, InvalidValue, Mapped, OrderError, RowIndexError


def made(random, precisions=("fp32", "fp32"), rows=50, **settings):
    """A mapped table, one group with the same rows, and the rows."""
    values = random.normal(size=(rows, 8)).astype("f4")
    of = random.integers(len(precisions), size=rows)
    of[: len(precisions)] = range(len(precisions))
    places = np.zeros((rows, 2), np.uint32)
    groups = []
    for at, precision in enumerate(precisions):
        own = np.flatnonzero(of == at)
        places[own] = np.stack([np.full(len(own), at), random.permutation(len(own))], 1)
        given = np.empty((len(own), 8), "f4")
        given[places[own, 1]] = values[own]
        groups.append(Group([len(own)], 8, values=given, precision=precision, optimizer=SGD(0.1), device="cpu", **settings))
    return Mapped(groups, places), Group([rows], 8, values=values, precision="fp32", optimizer=SGD(0.1), device="cpu"), values


def test_steps_are_those_of_one_group(random):
    mapped, one, values = made(random, ("fp32", "fp32", "fp32"))
    assert np.array_equal(mapped.read_rows(np.arange(50)), values) and (mapped.dim, mapped.total_rows) == (8, 50)
    for step in range(5):
        indices, offsets = random.integers(50, size=60), np.array([0, 0, 7, 31, 60])
        weights = random.normal(size=60).astype("f4") if step % 2 else None
        frozen = mapped.forward_frozen(indices, offsets, weights)
        found, wanted = mapped.forward(indices, offsets, weights), one.forward(indices, offsets, weights)
        assert np.allclose(found, wanted, atol=1e-5) and np.array_equal(found, frozen)
        assert not np.allclose(found, np.roll(wanted, 1, 0), atol=1e-5)
        grad = random.normal(size=found.shape).astype("f4")
        mapped.backward(grad)
        one.backward(grad)
        assert np.allclose(mapped.read_rows(np.arange(50)), one.read_rows(np.arange(50)), atol=1e-5)
    mapped.write_rows([3, 40], np.ones((2, 8), "f4"))
    assert (mapped.read_rows([40, 3]) == 1).all() and not (mapped.read_rows([4]) == 1).all()
    mapped.set_learning_rate(0)
    before = mapped.read_rows(np.arange(50))
    mapped.forward([1, 2], [0, 2])
    mapped.backward(np.ones((1, 8), "f4"))
    mapped.flush()
    assert np.array_equal(mapped.read_rows(np.arange(50)), before)


def test_each_row_has_its_group_s_precision(random):
    mapped, _, values = made(random, ("fp32", "int4"), cache_rows=32)
    errors = abs(mapped.read_rows(np.arange(50)) - values).max(1)
    assert (errors[mapped._group == 0] == 0).all() and (errors[mapped._group == 1] > 0).all()


def test_wrong_input_is_refused(random):
    mapped, *_ = made(random)
    for wrong, error, says in (
        (([50], [0, 1]), RowIndexError, "wanted 0 to 49, found 50 at position 0"), (([-1], [0, 1]), RowIndexError, "found -1"),
        (([0.5], [0, 1]), InvalidType, "whole numbers"), (([[1]], [0, 1]), InvalidType, "one dimension"), (([1, 2], [0, 1]), InvalidValue, "offsets"),
        (([1, 2], [1, 2]), InvalidValue, "offsets"), (([1, 2], [0, 2, 1, 2]), InvalidValue, "offsets"), (([1], []), InvalidValue, "offsets"),
        (([1], [0, 1], np.ones(2, "f4")), InvalidValue, "weights"),
    ):  # fmt: skip
        for call in mapped.forward, mapped.forward_frozen:
            with pytest.raises(error, match=says):
                call(*wrong)
    with pytest.raises(OrderError):
        mapped.backward(np.ones((1, 8), "f4"))
    mapped.forward([1], [0, 1])
    with pytest.raises(OrderError, match="wanted the backward"):
        mapped.forward([1], [0, 1])
    mapped.discard_pending()
    with pytest.raises(InvalidValue, match="values"):
        mapped.write_rows([1], np.ones((2, 8), "f4"))
    group = Group([3], 8, device="cpu")
    for wrong, says in (
        ([[0, 0], [0, 0]], "row 0 of group 0 twice"), ([[1, 0]], "groups 0 to 0"), ([[0, 3]], "rows 0 to 2"), ([0, 1], "shape"), ([[0.0, 1.0]], "float64"),
        ("nothing.npy", "nothing.npy"),
    ):  # fmt: skip
        with pytest.raises(InvalidValue, match=says):
            Mapped([group], wrong)
    with pytest.raises(InvalidValue, match="pooling: wanted sum"):
        Mapped([Group([3], 8, pooling="mean", device="cpu")], [[0, 0]])
    with pytest.raises(InvalidValue, match="dim: wanted 8"):
        Mapped([group, Group([3], 4, device="cpu")], [[0, 0], [1, 0]])
