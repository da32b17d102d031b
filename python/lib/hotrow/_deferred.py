"""Gradients of rows that wait for a step, and steps that move the tables of several bags, or of several ranks, alike."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from . import Group, InvalidValue, OrderError

Gradients = tuple[NDArray[np.int64], Tensor]
"""Distinct rows, ascending, and the gradient of each."""


def merged(ids: NDArray[np.int64], at: NDArray[np.int64], values: Tensor, scale: Tensor | None = None) -> Gradients:
    """The distinct ids, and for each the sum of its `values[at]`, times `scale`, in their order."""
    order = np.argsort(ids, kind="stable")
    rows, first = np.unique(ids[order], return_index=True)
    if not len(rows):
        return rows, values.new_zeros(0, values.shape[1])
    chosen = None if scale is None else scale[torch.from_numpy(order)]
    # A row's sum is a bag of the gradients.
    return rows, embedding_bag(torch.from_numpy(at[order]), values, torch.from_numpy(first), mode="sum", per_sample_weights=chosen)


def _joined(parts: Sequence[Gradients]) -> Gradients:
    ids = np.concatenate([rows for rows, _ in parts])
    return parts[0] if len(parts) == 1 else merged(ids, np.arange(len(ids)), torch.cat([grads for _, grads in parts]))


class Ranks:
    """The ranks that train one table, in a process group of their own."""

    def __init__(self, given: Any) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise OrderError("sync: wanted torch.distributed.init_process_group(..) before it, found no process group; call it first")
        given = given or dist.group.WORLD
        if not isinstance(given, dist.ProcessGroup):
            raise InvalidValue(f"process_group: wanted a group of torch.distributed.new_group that has this process, found {given!r}; leave others out")
        # The caller's timeout, where this version of torch tells it.
        backends = [given._get_backend(device) for device in getattr(given, "_device_types", [])]
        timeout = getattr(getattr(backends[0], "options", None), "_timeout", None) if backends else None
        self.members, self.broken = sorted(dist.get_process_group_ranks(given)), False
        with self.named():
            part = len(self.members) < dist.get_world_size()
            self.group = dist.new_group(self.members, timeout=timeout, backend="gloo", use_local_synchronization=part)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Names an error of torch.distributed's."""
        try:
            yield
        except (RuntimeError, ValueError) as error:
            raise OrderError(
                f"ranks: wanted all {len(self.members)} to take part in a sync, step or backward, found an error of torch.distributed: "
                f"{str(error).splitlines()[0]}; end all ranks, or call sync() on all of them again"
            ) from error

    def all(self, mine: Any) -> list[Any]:
        """The objects that the ranks give, in their order."""
        found: list[Any] = [None] * len(self.members)
        with self.named():
            dist.all_gather_object(found, mine, group=self.group)
        return found


class Rows:
    """A group, the gradients of its distinct rows, summed over backwards until a step, and the ranks that share it."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.ranks: Ranks | None = None
        self.parts: list[Gradients] = []
        self._lock = threading.Lock()
        # Optimisers whose gradients tell a torch.amp.GradScaler that a step begins, and whether those of the rows are finite.
        self.probes = [torch.optim.SGD([torch.zeros(1, device="cpu", requires_grad=True)], 0.0) for _ in range(2)]

    def take(self) -> list[Gradients]:
        """Takes the gradients out: those that come from now on count in the next step."""
        with self._lock:
            taken, self.parts = self.parts, []
        return taken

    def put(self, older: Sequence[Gradients], newer: Sequence[Gradients] = ()) -> None:
        """Adds gradients, older ones in front. Parts of like size are merged, so that many backwards merge a row few times."""
        with self._lock:
            new = [*older, *self.parts, *newer]
            while len(new) > 1 and len(new[-2][0]) <= 2 * len(new[-1][0]):
                new[-2:] = [_joined(new[-2:])]
            self.parts = new

    def total(self, parts: Sequence[Gradients], factor: float) -> Gradients | None:
        """The gradients times `factor`, over all ranks, divided by their number; None if no backward has come. Nothing changes."""
        none = np.empty(0, np.int64), torch.empty(0, self.group.dim, dtype=torch.float32, device="cpu")
        rows, grads = _joined(parts or [none])
        if not self.ranks:
            return (rows, grads * factor) if parts else None
        if self.ranks.broken:
            raise OrderError("step: wanted ranks that have moved alike, found that an earlier step failed on this one; call sync() on all of them again")
        found = self.ranks.all((self.group.config["optimizer"], bool(parts), rows, (grads * factor).numpy()))
        if any(rule != found[0][0] for rule, *_ in found):
            raise InvalidValue("step: wanted the optimiser's settings of rank 0 on all ranks, found others; set the same learning rate on all")
        rows, grads = _joined([(rows, torch.from_numpy(values)) for *_, rows, values in found])
        return (rows, grads / len(found)) if any(waits for _, waits, *_ in found) else None


@torch.no_grad()
def step(tables: Sequence[Rows], scaler: Any, factor: float, max_norm: float | None, grads: Sequence[Tensor], whole: bool = True) -> bool:
    """Moves the tables by their gradients times `factor`, and clips the other gradients with them. False if one is not finite: then, if `whole`, none moves.

    After an error a table that has not moved has its gradients still.
    """
    ranks, clip = tables[0].ranks, 1.0
    if any((table.ranks and table.ranks.members) != (ranks and ranks.members) for table in tables):
        raise InvalidValue("step: wanted bags that are all synchronised over the same ranks, or none, found others; step them apart")
    _tell(scaler, tables[0].probes[0], 0.0)
    taken = {table: table.take() for table in tables}
    try:
        moves = [(table, *total) for table in tables if (total := table.total(taken[table], factor))]
        every = [move[2] for move in moves] + [grad.coalesce().values() if grad.is_sparse else grad for grad in grads]
        finite = all(bool(grad.isfinite().all()) for grad in every)
        if max_norm is not None and every:
            norms = [torch.linalg.vector_norm(grad, dtype=torch.promote_types(grad.dtype, torch.float32)).cpu().double() for grad in every]
            clip = min(1.0, max_norm / (float(torch.linalg.vector_norm(torch.stack(norms))) + 1e-6))
        if ranks:
            # Dense gradients may differ in their last bits: rank 0 decides.
            said = ranks.all((finite, clip))
            finite, clip = all(each for each, _ in said), said[0][1]
        # So that the scale falls at the scaler's next update.
        _tell(scaler, tables[0].probes[1], 0.0 if finite else torch.inf)
        if whole and not finite:
            moves, grads = [], []
        for table, rows, _ in moves:
            if len(rows):
                table.group.forward(rows.astype(np.uint32), np.arange(len(rows) + 1))
        for table, rows, sums in moves:
            if len(rows):
                table.group.backward((sums * clip).numpy())
            taken[table] = []
        for grad in grads if clip < 1 else ():
            grad.mul_(clip)
    except BaseException as error:
        for table in tables:
            table.put(taken[table])
            if table.ranks and not isinstance(error, InvalidValue):
                table.ranks.broken = True
        for table in tables:
            table.group.discard_pending()
        raise
    return finite


def _tell(scaler: Any, probe: torch.optim.Optimizer, grad: float) -> None:
    """Shows a scaler the gradient of an optimiser of ours."""
    if scaler is None:
        return
    probe.param_groups[0]["params"][0].grad = torch.full((1,), grad, dtype=torch.float32, device="cpu")
    try:
        scaler.unscale_(probe)
    except (AssertionError, RuntimeError) as error:
        raise OrderError(
            f"scaler: wanted scaler.scale(loss) before the step, and scaler.update() between two steps, found none ({error}); make these calls in order"
        ) from error


def sync(table: Rows, process_group: Any, device: str, settings: dict[str, Any]) -> None:
    """Makes the table of rank 0 that of all ranks: in another group where the seed was another."""
    ranks = Ranks(process_group)
    mine = {**table.group.config, **settings}
    found = ranks.all((mine, bool(table.parts) or table.group.pending))
    for rank, (other, waits) in enumerate(found):
        if waits:
            raise OrderError(f"sync: wanted it before the first forward, found gradients that wait on rank {rank}; zero_grad() or discard_pending() first")
        for name, wanted in found[0][0].items():
            if other.get(name) != wanted and name not in ("seed", "init", "placement"):
                raise InvalidValue(f"sync: wanted {name} as on rank 0, {wanted}, found {other.get(name)} on rank {rank}; make the bags alike")
    first = dist.get_rank(ranks.group) == 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "group")
        if first:
            table.group.save(path)
        data = torch.from_numpy(np.fromfile(path, np.uint8)) if first else torch.empty(0, dtype=torch.uint8, device="cpu")
        size = ranks.all(len(data))[0]
        data = data if first else torch.empty(size, dtype=torch.uint8, device="cpu")
        with ranks.named():
            for piece in torch.split(data, 64 << 20):
                dist.broadcast(piece, ranks.members[0], group=ranks.group)
        if not first:
            data.numpy().tofile(path)
            if mine["seed"] == found[0][0]["seed"]:
                table.group.load(path)
            else:
                old, table.group = table.group, Group.open(path, device=device, placement=mine["placement"])
                old.close()
    table.ranks = ranks
