"""Embedding tables in packed low precision with a cache of hot rows, trained on any GPU (Vulkan, Metal, DX12) or on the CPU.

    import hotrow, numpy as np

    group = hotrow.Group([1_000_000], 64, precision="int8", cache_rows=50_000, optimizer=hotrow.AdaGrad(0.05))
    out = group.forward(np.array([3, 7, 3]), np.array([0, 2, 3]))  # two bags: float32 of shape (2, 64)
    group.backward(np.ones_like(out))                              # updates rows 3 and 7

hotrow.torch.EmbeddingBag is a module for PyTorch. The guide: docs/python.md.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _native
from ._mapped import Mapped
from .errors import DeviceError, Error, FileError, InvalidType, InvalidValue, OrderError, OutOfMemory, RowIndexError

if TYPE_CHECKING:
    from typing_extensions import Self

__version__ = _version("hotrow")
__all__ = [
    "AdaGrad", "Adam", "Codes", "DeviceError", "Error", "FileError", "Ftrl", "Group", "InvalidType", "InvalidValue", "Lion", "Mapped", "Momentum", "Normal", "OrderError",
    "OutOfMemory", "RowIndexError", "RowWiseAdaGrad", "RowWiseAdam", "Rule", "SGD", "SharedGroup", "Uniform", "plan_memory", "simulate",
]  # fmt: skip

Settings = dict[str, Any]


def SGD(lr: float, **more: Any) -> Settings:
    """`w -= lr * g`. All optimisers take clip_value, clip_norm and weight_decay: L2, added to the gradient (decoupled=True: as AdamW)."""
    return {"kind": "sgd", "lr": lr, **more}


def AdaGrad(lr: float, **more: Any) -> Settings:
    """One sum of squares for each weight; eps (1e-8) is added to the root."""
    return {"kind": "adagrad", "lr": lr, **more}


def RowWiseAdaGrad(lr: float, **more: Any) -> Settings:
    """AdaGrad with one sum for each row: the mean of the squares."""
    return {"kind": "row_wise_adagrad", "lr": lr, **more}


def Momentum(lr: float, momentum: float = 0.9, **more: Any) -> Settings:
    """SGD with momentum. Rows that a step does not read rest."""
    return {"kind": "momentum", "lr": lr, "beta1": momentum, **more}


def Adam(lr: float, betas: tuple[float, float] = (0.9, 0.999), **more: Any) -> Settings:
    """Adam on the rows that a step reads, as torch's SparseAdam. own_count=True corrects by each row's own updates."""
    return {"kind": "adam", "lr": lr, "betas": betas, **more}


def Ftrl(lr: float, l1: float = 0.0, l2: float = 0.0, beta: float = 1.0, **more: Any) -> Settings:
    """FTRL-Proximal. A weight is 0 where l1 outweighs its gradients. State is FP32. l2 is twice TensorFlow's."""
    return {"kind": "ftrl", "lr": lr, "l1": l1, "l2": l2, "beta": beta, **more}


def Lion(lr: float, beta1: float = 0.9, beta2: float = 0.99, weight_decay: float = 0.0, **more: Any) -> Settings:
    """Lion: each weight goes by lr. Weight decay is decoupled, as in AdamW."""
    return {"kind": "lion", "lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay, "decoupled": True, **more}


def Rule(
    name: str, states: Sequence[str], wgsl: str, step: Callable[..., Any], first: Callable[[Any], Any] | None = None, *,
    lr: float = 0.01, hyper: Mapping[str, float] | None = None, **more: Any,
) -> Settings:  # fmt: skip
    """An update rule of your own, for groups on the CPU and on a GPU.

    states: of each element, at most two of "sum", "signed sum", "moment" and "signed moment", which decide their form in a packed row.
    wgsl: `fn rule(e: Element, n: Numbers) -> Element` for the GPU (docs/python.md). hyper: at most four numbers, n.hyper.x to n.hyper.w there.
    step: the same for the CPU, with float32 arrays of shape (rows, dim): step(n, g, w, *states) returns w, or (w, *states). n.lr, n.t (number of the step),
    n.decay (decoupled weight decay) and n.<name> of each of hyper. An exception or another shape fails the step, and no row moves.
    first: the states of new weights, first(w) with w of shape (1, dim); zeros without it.
    """
    numbers = [(str(key), _number(f"rule, hyper, {key}", value)) for key, value in (hyper or {}).items()]
    return {"kind": "own", "lr": lr, "rule": _native.OwnRule(name, list(states), numbers, wgsl, step, first), **more}


def RowWiseAdam(lr: float, betas: tuple[float, float] = (0.9, 0.999), **more: Any) -> Settings:
    """Adam with one second moment for each row."""
    return {"kind": "row_wise_adam", "lr": lr, "betas": betas, **more}


def Uniform(low: float, high: float) -> Settings:
    """Initial values: uniform from low to high, the same for a seed on every machine."""
    return {"uniform": {"low": low, "high": high}}


def Normal(mean: float = 0.0, std: float = 1.0) -> Settings:
    """Initial values: normally distributed."""
    return {"normal": {"mean": mean, "std": std}}


def _number(name: str, value: Any, whole: bool = False) -> Any:
    """The value as a number of Python's."""
    try:
        if isinstance(value, (bool, np.bool_, str, bytes)):
            raise TypeError
        return operator.index(value) if whole else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise InvalidValue(f"{name}: wanted a {'whole ' * whole}number, found {value!r}; change this setting") from None


def _own(optimizer: Any) -> Any:
    """The rule of one's own in the settings of an optimiser, if there is one."""
    return optimizer.get("rule") if isinstance(optimizer, dict) else None


def _json(settings: Mapping[str, Any]) -> str:
    def plain(value: Any) -> Any:
        if hasattr(value, "tolist"):  # numbers and arrays of numpy's
            return value.tolist()
        raise InvalidValue(f"settings: wanted numbers, names and lists, found {value!r}; correct the setting")

    given = {name: value for name, value in settings.items() if value is not None}
    init, rule = given.get("init", 0.0), given.get("optimizer", {})
    if isinstance(init, (int, float, np.number)):
        given["init"] = init = {"constant": _number("init", init)}
    for name, value, wanted in (("init", init, "a number, hotrow.Uniform or hotrow.Normal"), ("optimizer", rule, "hotrow.SGD(lr), hotrow.AdaGrad(lr) or another")):
        if not isinstance(value, dict):
            raise InvalidValue(f"{name}: wanted {wanted}, found {value!r}; change this setting")
    if "betas" in rule:
        if not isinstance(rule["betas"], (tuple, list)) or len(rule["betas"]) != 2:
            raise InvalidValue(f"optimizer, betas: wanted two numbers, found {rule['betas']!r}; (0.9, 0.999) is usual")
        rule = {**{name: value for name, value in rule.items() if name != "betas"}, **dict(zip(("beta1", "beta2"), rule["betas"]))}
    if "rule" in rule:
        given["optimizer"] = rule = {name: value for name, value in rule.items() if name != "rule"}
    for name in ("lr", "eps", "weight_decay", "beta1", "beta2", "l1", "l2", "beta", "clip_value", "clip_norm"):
        if name in rule and not (rule[name] is None and name.startswith("clip")):
            given["optimizer"] = rule = {**rule, name: _number(f"optimizer, {name}", rule[name])}
    try:
        return json.dumps(given, default=plain, allow_nan=False)
    except ValueError as error:
        if isinstance(error, Error):
            raise
        raise InvalidValue(f"settings: wanted finite numbers, found {given}; correct the setting") from None


# Weights of a block, in precisions whose blocks have a scale and a bias in FP16.
_BLOCKS: dict[str, int] = {"int4x32": 32}


class Codes(NamedTuple):
    """The packed rows of a table. A weight is code * scale + bias."""

    codes: NDArray[Any]
    """uint8 of shape (rows, bytes), low bits of a byte first; float16 or float32 of shape (rows, dim) in those precisions."""
    scale: NDArray[Any] | None
    """Of each row, float32; or of each block of a row, float16 of shape (rows, blocks); None without integer codes."""
    bias: NDArray[Any] | None


class _Group(_native.Table):
    """The calls of both kinds of groups."""

    def __repr__(self) -> str:
        return f"<hotrow.{type(self).__name__}: {self.total_rows} rows x {self.dim} on {self.device}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot copy or pickle a hotrow.{type(self).__name__}: save(path) it, and load(path) it into another")

    @property
    def config(self) -> Settings:
        """Every setting, with the learning rate that is set now."""
        return json.loads(self.settings_json)  # type: ignore[no-any-return]


class Group(_Group):
    """Tables of one dim and precision that share a cache.

    rows: the number of rows of each table. dim: weights of a row.
    precision: "fp32", "fp16", "int8", "int4" or "int2", in which the table stores a weight; or "int4x32", with forward_only=True.
    cache_rows: rows that the FP32 cache holds, 0 for none. policy: "lru", "lfu", "window" or "static".
    optimizer: hotrow.SGD(lr), AdaGrad, RowWiseAdaGrad, Momentum, Adam, RowWiseAdam, Ftrl, Lion, or a hotrow.Rule of your own.
    pooling: "sum", "mean" or "none". placement, on a GPU: "auto", "device", "mapped" or "staged".
    device: "cpu"; "gpu", a software driver too; "auto", a GPU if there is one, else the CPU.
    seed: of initial values and rounding, 0 to 2^32 - 1. values: float32 of shape (rows, dim), the initial weights of all tables.
    values_range: "whole", or "searched" for the range of each row's codes with the least squared error, which takes as long as 625 roundings.
    write_rounding: "nearest" or "stochastic", of values and of write_rows, but for rows in the cache; rounding is that of training.
    settings: any other field of the library's GroupConfig by name, such as init=hotrow.Uniform(-0.1, 0.1), padding=[0],
    out_of_range="skip", rounding="nearest", features=[0, 0], ways=32.

    Without values and init all weights are 0. Calls release Python's lock; calls of several threads wait for each other.
    """

    def __new__(
        cls, rows: Sequence[int] | ArrayLike, dim: int, *, precision: str | None = None, cache_rows: int | None = None, policy: str | None = None,
        optimizer: Settings | None = None, pooling: str | None = None, placement: str = "auto", device: str = "auto", seed: int = 0,
        values: ArrayLike | None = None, values_range: str = "whole", write_rounding: str | None = None, **settings: Any,
    ) -> Group:  # fmt: skip
        if values_range not in ("whole", "searched"):
            raise InvalidValue(f"values_range: wanted 'whole' or 'searched', found {values_range!r}")
        searches = values_range == "searched"
        if searches and values is None:
            raise InvalidValue("values_range: wanted values beside 'searched', found none; give values, or leave it out")
        settings |= dict(precision=precision, cache_rows=cache_rows, policy=policy, optimizer=optimizer, pooling=pooling)
        settings |= dict(placement=placement, seed=seed, write_rounding=write_rounding)
        return super().__new__(cls, "rows", rows, dim, _json(settings), str(device), values, _own(optimizer), searches)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, device: str = "auto", placement: str = "auto") -> Group:
        """The group of a file that save, or the command `hotrow import`, wrote."""
        return cls._opened(path, device, {"placement": placement})

    @classmethod
    def _opened(cls, path: Any, device: str, own: Settings) -> Group:
        """The group of a file, but for settings of our own."""
        config: Settings = json.loads(_native.saved_settings(path)) | own
        del config["stripe"]
        if config.pop("rule") is not None:
            raise InvalidValue("rule: wanted a rule of the library, found a file of a rule of your own; make the group with it, then call load(path)")
        group = cls(config.pop("tables"), config.pop("dim"), device=device, **config)
        group.load(path)
        return group

    def _table(self, table: int) -> tuple[int, int]:
        """The first linear row of a table, and its rows."""
        tables, table = self.config["tables"], _number("table", table, whole=True)
        if not 0 <= table < len(tables):
            raise RowIndexError(f"table: wanted 0 to {len(tables) - 1}, found {table}; name one of the group's tables")
        return sum(tables[:table]), tables[table]

    def read_codes(self, table: int = 0) -> Codes:
        """The packed rows of a table as arrays, for FBGEMM and others (docs/python.md). The cache is flushed first."""
        packed = self.packed(*self._table(table))
        _, start, length = self.packed_layout
        codes = packed[:, start : start + length]
        precision = self.config["precision"]
        if precision in ("fp32", "fp16"):
            return Codes(codes.copy().view("f4" if precision == "fp32" else "f2"), None, None)
        kind, shape = self._heads(len(packed))
        heads = packed[:, : 2 * int(np.prod(shape[1:])) * np.dtype(kind).itemsize].copy().view(kind).reshape(*shape, 2)
        return Codes(codes, heads[..., 0], heads[..., 1])

    def _heads(self, rows: int) -> tuple[str, tuple[int, ...]]:
        """The type and the shape of the scales of so many rows."""
        block = _BLOCKS.get(self.config["precision"])
        return ("float16", (rows, self.dim // block)) if block else ("float32", (rows,))

    def write_codes(self, table: int, codes: Codes) -> None:
        """Replaces the packed rows of a table by arrays of the form that read_codes returns; the states of the optimiser stay."""
        if self.config["optimizer"]["kind"] == "ftrl":
            raise InvalidValue("optimizer: wanted another rule for packed rows, found ftrl, whose state follows from exact weights; call write_rows")
        first, rows = self._table(table)
        packed = self.packed(first, rows)
        stride, start, length = self.packed_layout
        kind = {"fp32": "float32", "fp16": "float16"}.get(self.config["precision"], "uint8")
        new = _native.as_array("codes", codes.codes, kind)
        if new.shape != (rows, length // new.itemsize):
            raise InvalidValue(f"codes: wanted {rows} rows of {length} bytes, found shape {new.shape}; correct the array")
        if not np.isfinite(new).all():
            raise InvalidValue("codes: wanted finite numbers, found one that is not; correct the array")
        (head, shape), heads = self._heads(rows), []
        for name, part in (("scale", codes.scale), ("bias", codes.bias)):
            if (part is not None) != (kind == "uint8"):
                raise InvalidValue(f"{name}: wanted {'one' if kind == 'uint8' else 'none'} with {self.config['precision']}; see read_codes")
            if part is not None:
                value = _native.as_array(name, part, head)
                if value.shape != shape or not np.isfinite(value).all():
                    raise InvalidValue(f"{name}: wanted finite numbers of shape {shape}, found shape {value.shape}; correct the array")
                if head == "float16" and name == "scale" and (value < 0).any():
                    raise InvalidValue("scale: wanted 0 or more, found one below; correct the array")
                heads.append(value + np.float16(0) if head == "float16" else value)  # no head is -0
        if heads:
            new_heads = np.stack(heads, -1).view(np.uint8).reshape(rows, -1)
            packed[:, : new_heads.shape[1]] = new_heads
        packed[:, start : start + length] = new.view(np.uint8)
        self.write_packed(first, packed)


class SharedGroup(_Group):
    """Tables whose rows share one array of weights (ROBE): 10 to 10,000 times smaller.

    rows, dim, optimizer, pooling, device, seed: as of Group. weights: floats of the array. chunk: neighbouring weights of a row that lie together.
    precision: "fp32" by default. settings: any other field of the library's robe::Config by name.
    """

    def __new__(
        cls, rows: Sequence[int] | ArrayLike, dim: int, weights: int, *, chunk: int = 16, precision: str | None = None,
        optimizer: Settings | None = None, pooling: str | None = None, device: str = "auto", seed: int = 0, **settings: Any,
    ) -> SharedGroup:  # fmt: skip
        settings |= dict(weights=weights, chunk=chunk, precision=precision, optimizer=optimizer, pooling=pooling, seed=seed)
        return super().__new__(cls, "shared", rows, dim, _json(settings), str(device), None)


def plan_memory(rows: Sequence[int] | ArrayLike, dim: int, *, indices: int = 0, **settings: Any) -> dict[str, int]:
    """The bytes that a Group of these settings would allocate, by purpose, for batches of `indices` indices. Nothing is allocated."""
    return _native.plan_memory(rows, dim, _json(settings), indices)


def _ids(trace: Any) -> NDArray[Any]:
    """Ids as an integer array in which different ids stay different: no number passes through float64."""
    refused = "trace: wanted integers from -2^63 to 2^64 - 1 in one dimension, found {}; number the ids"
    is_array = any(hasattr(trace, name) for name in ("dtype", "itemsize", "__array__", "__dlpack__"))
    try:
        ids = _native.as_array("trace", trace if is_array else np.array(trace, dtype=object))
    except InvalidValue as error:
        raise InvalidType(refused.format(error)) from error
    if ids.ndim != 1:
        raise InvalidType(refused.format(f"{type(trace).__name__} of shape {ids.shape}"))
    if ids.dtype.kind in "iu" or not len(ids):
        return ids if len(ids) else np.zeros(0, np.uint64)
    if ids.dtype.kind != "O":
        raise InvalidType(refused.format(ids.dtype))
    for at, id in enumerate(ids):
        if isinstance(id, bool) or not isinstance(id, (int, np.integer)) or not -(2**63) <= id < 2**64:
            raise InvalidType(refused.format(f"{id!r} at position {at}"))
    bits = max(ids) >= 2**63
    return np.fromiter((int(id) % 2**64 if bits else int(id) for id in ids), np.uint64 if bits else np.int64, len(ids))


def simulate(
    trace: ArrayLike, *, rows: int | None = None, cache_percent: float | Iterable[float] = (1, 5, 10),
    policy: str | Iterable[str] = ("lru", "lfu", "window", "best"), ways: int = 32, batch: int = 1,
) -> list[dict[str, Any]]:  # fmt: skip
    """Plays row ids through caches that are empty at first, and counts hits, without rows or a device.

    trace: ids, shape (n,): an array of integers, or a list or array of Python's, 0 to 2^64 - 1; a negative id counts as 2^64 + id. rows: of the table,
    whose rows the ids then are; else ids are numbered by first appearance. policy: "best" knows the future. ways: 0 for one set.
    Returns a dict for each policy and size: hit_rate, accesses, hits, evictions and others. Raises InvalidType, a TypeError, for any other trace.
    """
    ids = _ids(trace)
    if rows is None:
        found, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        ids, rows = np.argsort(np.argsort(first)).astype(np.uint32)[inverse], max(1, len(found))
    policies = [policy] if isinstance(policy, str) or not isinstance(policy, Iterable) else list(policy)
    sizes: Any = cache_percent if isinstance(cache_percent, Iterable) and not isinstance(cache_percent, (str, bytes)) else [cache_percent]
    sizes = [_number("cache_percent", size) for size in sizes]
    if not all(isinstance(name, str) for name in policies):
        raise InvalidValue(f"policy: wanted lru, lfu, window or best, or some of them, found {policy!r}; name them")
    return [{"policy": name, "cache_percent": size, **_native.simulate(ids, rows, size, name, ways, batch)} for name in policies for size in sizes]
