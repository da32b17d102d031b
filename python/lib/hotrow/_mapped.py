"""One table whose rows lie in groups of different precisions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _native
from .errors import InvalidType, InvalidValue, OrderError, RowIndexError

if TYPE_CHECKING:
    from . import Group

_Parts = list[tuple[NDArray[np.uint32], NDArray[np.uint32], "NDArray[Any] | None"]]


def _whole(name: str, given: ArrayLike, most: int) -> NDArray[np.int64]:
    """Whole numbers from 0 to most, in one dimension."""
    array = _native.as_array(name, given)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise InvalidType(f"{name}: wanted whole numbers in one dimension, found {array.dtype} of shape {array.shape}; convert the array")
    wrong = (array < 0) | (array > most)
    if wrong.any():
        at = int(wrong.argmax())
        raise RowIndexError(f"{name}: wanted 0 to {most}, found {array[at]} at position {at}; correct the number")
    return array.astype(np.int64)


class Mapped:
    """One table whose rows lie in groups of different precisions, as `hotrow plan precision` sorts them.

    groups: of one dim, each of one table, with sum pooling. map: whole numbers of shape (rows, 2), for each row its group and its row there, or the path of
    STEM.map.npy. Each row of a group is that of at most one row of the table.

    The calls are those of Group. Rows of a bag are added group by group, so a sum may differ in its last bits from that of one group. An index outside
    the table is refused. A call that one group refuses leaves the others without a step.
    """

    def __init__(self, groups: Sequence[Group], map: ArrayLike | os.PathLike[str]) -> None:  # noqa: A002
        path = map if isinstance(map, (str, os.PathLike)) else None
        try:
            places = _native.as_array("map", map if path is None else np.load(path))
        except (OSError, EOFError, ValueError) as error:
            raise InvalidValue(f"map: wanted whole numbers of shape (rows, 2), or the path of a .npy file, found {path or map!r}: {error}") from error
        if places.ndim != 2 or places.shape[1] != 2 or not len(places) or places.dtype.kind not in "iu":
            raise InvalidValue(f"map: wanted whole numbers of shape (rows, 2), found {places.dtype} of shape {places.shape}; see `hotrow plan precision`")
        self._groups = list(groups)
        self._group, self._row = places[:, 0].astype(np.int64), places[:, 1].astype(np.int64)
        if self._group.min() < 0 or self._group.max() >= len(self._groups):
            raise InvalidValue(f"map: wanted groups 0 to {len(self._groups) - 1}, found {self._group.min()} to {self._group.max()}")
        for at, group in enumerate(self._groups):
            rows = np.sort(self._row[self._group == at])
            if len(rows) and (rows[0] < 0 or rows[-1] >= group.total_rows):
                raise InvalidValue(f"map: wanted rows 0 to {group.total_rows - 1} of group {at}, found {rows[0]} to {rows[-1]}")
            twice = rows[1:][rows[1:] == rows[:-1]]
            if len(twice):
                raise InvalidValue(f"map: wanted each row of a group once, found row {twice[0]} of group {at} twice")
            config = group.config
            for name, wanted, found in (
                ("dim", self._groups[0].dim, group.dim), ("pooling", "sum", config["pooling"]), ("tables", 1, len(config["tables"])),
                ("features", [], config["features"]),
            ):  # fmt: skip
                if wanted != found:
                    raise InvalidValue(f"{name}: wanted {wanted} in each group, found {found} in group {at}")

    @property
    def dim(self) -> int:
        """Weights of a row."""
        return self._groups[0].dim

    @property
    def total_rows(self) -> int:
        """Rows of the table."""
        return len(self._row)

    def _parts(self, indices: ArrayLike, offsets: ArrayLike, weights: ArrayLike | None) -> _Parts:
        """The bags of each group: of every bag those indices whose rows it has."""
        ids = _whole("indices", indices, self.total_rows - 1)
        ends = _whole("offsets", offsets, len(ids))
        if not len(ends) or ends[0] != 0 or ends[-1] != len(ids) or (np.diff(ends) < 0).any():
            raise InvalidValue(f"offsets: wanted numbers from 0 to {len(ids)} that do not fall, found {ends[:4]} ..")
        factors = None if weights is None else _native.as_array("weights", weights)
        if factors is not None and factors.shape != ids.shape:
            raise InvalidValue(f"weights: wanted shape {ids.shape}, found {factors.shape}")
        of, rows = self._group[ids], self._row[ids]
        parts: _Parts = []
        for at in range(len(self._groups)):
            own = of == at
            before = np.concatenate([[0], np.cumsum(own)])
            parts.append((rows[own].astype(np.uint32), before[ends].astype(np.uint32), None if factors is None else factors[own]))
        return parts

    def forward(self, indices: ArrayLike, offsets: ArrayLike, weights: ArrayLike | None = None) -> NDArray[np.float32]:
        """Looks up and adds the rows of each bag: one step, whose backward must follow."""
        parts = self._parts(indices, offsets, weights)
        if any(group.pending for group in self._groups):
            raise OrderError("forward: wanted the backward of the last forward, found none; call backward or discard_pending")
        try:
            return self._sum(lambda group, part: group.forward(*part), parts)
        except BaseException:
            self.discard_pending()
            raise

    def forward_frozen(self, indices: ArrayLike, offsets: ArrayLike, weights: ArrayLike | None = None) -> NDArray[np.float32]:
        """As forward, but nothing changes."""
        return self._sum(lambda group, part: group.forward_frozen(*part), self._parts(indices, offsets, weights))

    def _sum(self, call: Callable[[Any, Any], Any], parts: _Parts) -> NDArray[np.float32]:
        first, *others = (call(group, part) for group, part in zip(self._groups, parts))
        for other in others:
            first += other
        return first  # type: ignore[no-any-return]

    def backward(self, grad: ArrayLike) -> None:
        """Updates each row that the last forward has read, once, by its group's optimiser. grad: float32, of the shape of its outputs."""
        for group in self._groups:
            group.backward(grad)

    def discard_pending(self) -> None:
        """Gives up the backward of the last forward."""
        for group in self._groups:
            group.discard_pending()

    def read_rows(self, rows: ArrayLike) -> NDArray[np.float32]:
        """The weights of rows: float32 of shape (n, dim)."""
        ids = _whole("rows", rows, self.total_rows - 1)
        found = np.empty((len(ids), self.dim), np.float32)
        for at, group in enumerate(self._groups):
            own = self._group[ids] == at
            found[own] = group.read_rows(self._row[ids[own]])
        return found

    def write_rows(self, rows: ArrayLike, values: ArrayLike) -> None:
        """Replaces the weights of rows. values: float32 of shape (n, dim)."""
        ids, new = _whole("rows", rows, self.total_rows - 1), _native.as_array("values", values)
        if new.shape != (len(ids), self.dim):
            raise InvalidValue(f"values: wanted shape {(len(ids), self.dim)}, found {new.shape}")
        for at, group in enumerate(self._groups):
            own = self._group[ids] == at
            group.write_rows(self._row[ids[own]], new[own])

    def set_learning_rate(self, rate: float) -> None:
        """The rate of every group."""
        for group in self._groups:
            group.set_learning_rate(rate)

    def flush(self) -> None:
        """Writes the rows of every cache back to its table."""
        for group in self._groups:
            group.flush()
