"""A torch.nn.Module over a hotrow.Group: its backward updates the table, as the fused optimisers of FBGEMM's TBE do."""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import warnings
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import FileError, Group, InvalidType, InvalidValue, Normal, OrderError, Settings, _deferred, _native, _number

__all__ = ["EmbeddingBag", "step"]
_LEAVE_OUT = "wanted torch's operators alone, found hotrow.torch.EmbeddingBag, which runs hotrow's: leave this module out, or keep it eager"
# What torch 2.7 and later say if they must not leave it out themselves.
_REASON = {"reason": _LEAVE_OUT} if "reason" in inspect.signature(torch.compiler.disable).parameters else {}


class _Token:
    """Lives as long as the graph of a forward."""


class _Last:
    """The last training forward. No attribute of the module, whose assignments cost microseconds."""

    forward: weakref.ref[_Token] | None = None
    warned: bool = False


class _Look(torch.autograd.Function):
    """A look-up whose backward gives the weights their gradient, and if it trains moves the rows or keeps their gradients."""

    @staticmethod
    def forward(ctx: Any, bag: EmbeddingBag, anchor: Tensor | None, weights: Tensor | None, indices: Tensor, offsets: Tensor, ends: Any) -> Tensor:
        ctx.bag, ctx.token, ctx.trains, ctx.weighs = bag, _Token(), anchor is not None, ctx.needs_input_grad[2]
        ctx.at_once = ctx.trains and bag.update == "backward"
        ctx.moves = ctx.at_once and not bag._rows.ranks
        # Saved, so that torch refuses a backward after a change of them; copied, since some changes are none that torch sees.
        ctx.save_for_backward(weights, indices, offsets)
        ids = _numpy("input", indices)
        if ctx.weighs or not ctx.moves:
            ids, ends = ids.copy(), ends.copy()
        if ctx.at_once:
            # Before the call: an interrupt may come after it.
            bag._last.forward = weakref.ref(ctx.token)
        out = bag._run(ids, ends, weights, train=ctx.moves)
        ctx.batch = ids, ends, None if ctx.moves or weights is None else weights.detach().to(torch.float32, copy=True)
        # The rows as they are now: until the backward a step may change them.
        ctx.rows = bag._run(ids, np.arange(len(ids) + 1), None, train=False) if ctx.weighs and not ctx.moves else None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        bag: EmbeddingBag = ctx.bag
        if ctx.at_once and (bag._last.forward is None or bag._last.forward() is not ctx.token):
            raise OrderError("backward: wanted that of the last forward, found that of an earlier one, given up since; make one forward a step")
        ctx.saved_tensors  # noqa: B018
        (ids, ends, weights), grad, weight_grad = ctx.batch, torch.from_numpy(_numpy("grad", grad, torch.float32)), None
        if ctx.moves:
            if ctx.weighs:
                weight_grad = torch.from_numpy(bag.group.weight_gradient(ids, ends, _numpy("grad", grad)))
            grad = grad if bag.grad_scaler is None else grad / bag.grad_scaler.get_scale()
            if bag.grad_scaler is None or bool(grad.isfinite().all()):
                bag.group.backward(_numpy("grad", grad))
            else:
                bag.group.discard_pending()
        else:
            bags = np.repeat(np.arange(len(ends) - 1), np.diff(ends.astype(np.int64)))
            if ctx.weighs:
                weight_grad = (ctx.rows * grad[bags]).sum(1)
            if ctx.trains:
                bag._keep(ids.astype(np.int64), bags, weights, grad.contiguous())
        return None, None, weight_grad, None, None, None


def _numpy(name: str, tensor: Tensor, kind: torch.dtype | None = None) -> np.ndarray[Any, Any]:
    """The tensor's own memory, if it is on the CPU and of that kind."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        raise InvalidValue(f"torch.jit.trace: {_LEAVE_OUT}")
    try:
        return (tensor if kind in (None, tensor.dtype) else tensor.to(kind)).numpy(force=True)
    except (RuntimeError, TypeError) as error:
        found = f"{type(tensor).__name__} of {tensor.dtype}, {tensor.layout}, on {tensor.device} ({error})"
        remedy = "convert it, move it off \"meta\", and keep the bag out of torch.export and torch.func"
        raise InvalidValue(f"{name}: wanted a tensor whose values can be read, found {found}; {remedy}") from error


class _Refused(str):
    """The key of a state that was not taken: torch shows the reason if it is strict."""

    reason = ""

    def __format__(self, _: str) -> str:
        return f"{self!s}, which is there but was not taken: {self.reason}"


def _weights(name: str, given: Any) -> Any:
    """Weights of a model, a tensor's or an array's, in float32."""
    is_tensor = isinstance(given, Tensor)
    array: Any = given.detach() if is_tensor else _native.as_array(name, given)
    if not (array.is_floating_point() if is_tensor else array.dtype.kind == "f"):
        raise InvalidValue(f"{name}: wanted floats, found {array.dtype}; convert them")
    with np.errstate(over="ignore"):
        return _numpy(name, array, torch.float32) if is_tensor else array.astype(np.float32)


def step(bags: Iterable[EmbeddingBag] | EmbeddingBag, scaler: Any = None, max_norm: float | None = None, parameters: Iterable[Tensor] = ()) -> bool:
    """Moves bags of update="step" by the gradients that their backwards have added up, and drops those. A bag without gradients stays as it is; after sync()
    it does if no rank has any. After an error a bag that has not moved has its gradients still.

    scaler: the torch.amp.GradScaler of the losses, between `scaler.unscale_(optimizer)` and `scaler.update()`: the bags' gradients are divided by its scale.
    max_norm: all gradients, of bags and parameters, are multiplied by min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does.
    parameters: of the dense parts, whose gradients count in the norm and are multiplied in place.

    Returns False if a gradient of a bag or a parameter is not finite: no bag moves, the scale falls at the next `scaler.update()`, and the caller leaves
    its own optimiser's step out, too: `if hotrow.torch.step(..): scaler.step(optimizer)`.
    """
    tables = _each("bags", bags, EmbeddingBag, 'EmbeddingBags of hotrow.torch with update="step", one or more')
    tensors = _each("parameters", parameters, Tensor, "tensors with dense or COO gradients, as model.parameters() gives them")
    if max_norm is not None and not (max_norm := _number("max_norm", max_norm)) >= 0:
        raise InvalidValue(f"max_norm: wanted a number of 0 or more, or None, found {max_norm}; correct this argument")
    if scaler is not None and not (hasattr(scaler, "get_scale") and hasattr(scaler, "unscale_")):
        raise InvalidValue(f"scaler: wanted a torch.amp.GradScaler or None, found {scaler!r}; correct this argument")
    factor, grads = 1.0 if scaler is None else 1 / scaler.get_scale(), [one.grad for one in tensors if one.grad is not None]
    return _deferred.step([bag._rows for bag in tables], scaler, factor, max_norm, grads)


def _each(name: str, given: Any, kind: type, wanted: str) -> list[Any]:
    """The bags or tensors of a step, each once."""
    found: list[Any] = [given] if isinstance(given, kind) or not isinstance(given, Iterable) else list(given)
    for one in found or [found] * (kind is EmbeddingBag):
        layout = getattr(getattr(one, "grad", None), "layout", torch.strided)
        if not isinstance(one, kind) or getattr(one, "update", "step") != "step" or layout not in (torch.strided, torch.sparse_coo):
            shown = f'one with update="{one.update}"' if isinstance(one, EmbeddingBag) else f"a {type(one).__name__}"
            raise InvalidValue(f"{name}: wanted {wanted}, found {shown}; correct this argument")
    return list(dict.fromkeys(found))


class EmbeddingBag(torch.nn.Module):
    """As torch.nn.EmbeddingBag, but the table is a hotrow.Group: packed, cached, larger than the GPU if need be.

    The table is no parameter: the backward of a loss updates its rows by `optimizer` (a hotrow.SGD, AdaGrad, ...), so no optimiser of torch may have
    it. One forward a step: with several batches, look up all bags at once. Under torch.no_grad(), in eval(), and if it is frozen, nothing changes.
    bag.requires_grad_(False) freezes it; that of a model which has the bag does not reach it, nor do the `inputs` of torch.autograd.grad: any backward
    through a training forward counts.

    update: "backward", or "step": then backwards add the gradients of rows up, over any number of forwards, and hotrow.torch.step moves the table once. It
    alone can clip gradients, or leave a step out with torch's optimisers. Forwards then change nothing; counters and the cache move at the step.
    grad_scaler: a torch.amp.GradScaler, with update="backward": each backward divides by its scale, and leaves the table alone if a gradient is not
    finite. The dense parameters may still move then, and the other way round.

    mode: "sum" or "mean". precision, policy, placement, device, seed: as of hotrow.Group. cache: the share of the rows that the FP32 cache holds.
    init: hotrow.Uniform, hotrow.Normal or a number; standard normal by default, as torch's. state: in state_dict the weights in FP32 ("fp32"), or a
    checkpoint with the packed rows, the cache and the optimiser's states ("packed"). settings: any other setting of hotrow.Group.

    Tensors that are not on the CPU are copied there and back. The group may itself compute on a GPU: `device` says so, and is no device of torch's.
    """

    def __init__(
        self, num_embeddings: int, dim: int, mode: str = "mean", *, include_last_offset: bool = False, padding_idx: int | None = None,
        precision: str = "int8", cache: float = 0.05, optimizer: Settings | None = None, device: str = "auto", init: Settings | float | None = None,
        state: str = "fp32", frozen: bool = False, update: str = "backward", grad_scaler: Any = None, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        choices = ("update", update, ("backward", "step")), ("mode", mode, ("sum", "mean")), ("state", state, ("fp32", "packed"))
        for name, found, wanted in choices:
            if found not in wanted:
                raise InvalidValue(f'{name}: wanted "{wanted[0]}" or "{wanted[1]}", found {found!r}; choose one of them')
        if grad_scaler is not None and (update == "step" or not hasattr(grad_scaler, "get_scale")):
            found = f'{type(grad_scaler).__name__} and update="{update}"; pass a scaler to hotrow.torch.step with update="step"'
            raise InvalidValue(f'grad_scaler: wanted a torch.amp.GradScaler and update="backward", found {found}')
        if not 0 <= (cache := _number("cache", cache)) <= 1:
            raise InvalidValue(f"cache: wanted a share of the rows from 0 to 1, found {cache}; 0.05 is 5 % of them")
        if taken := settings.keys() & {"cache_rows", "pooling", "padding", "features"}:
            raise InvalidValue(f"settings: wanted cache, mode and padding_idx, and one feature, found {min(taken)}; they stand for it here")
        num_embeddings = _number("num_embeddings", num_embeddings, whole=True)
        if padding_idx is not None:
            if not -num_embeddings <= (padding_idx := _number("padding_idx", padding_idx, whole=True)) < num_embeddings:
                raise InvalidValue(f"padding_idx: wanted -{num_embeddings} to {num_embeddings - 1}, found {padding_idx}; name a row")
            settings["padding"] = [padding_idx % num_embeddings]
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, dim, mode
        self.include_last_offset, self.padding_idx, self.state, self.frozen = include_last_offset, padding_idx, state, frozen
        settings["init"] = Normal() if init is None and "values" not in settings else init
        settings |= dict(precision=precision, cache_rows=int(cache * num_embeddings), optimizer=optimizer, pooling=mode, device=device)
        self.group = Group([num_embeddings], dim, **settings)
        # Autograd calls backward for it where no other input wants a gradient.
        self._anchor = torch.empty(0, requires_grad=True)
        self._last = _Last()
        self.update, self.grad_scaler = update, grad_scaler
        self._rows, self._device, self._alone, self._looks = _deferred.Rows(self.group), device, False, settings.get("forward_only")

    @classmethod
    def from_pretrained(cls, embeddings: Tensor | NDArray[Any], *, freeze: bool = True, **settings: Any) -> EmbeddingBag:
        """The weights of a tensor or array of shape (rows, dim), or those of a torch.nn.EmbeddingBag: `from_pretrained(bag.weight)`."""
        values = _weights("embeddings", embeddings)
        if values.ndim != 2:
            raise InvalidValue(f"embeddings: wanted shape (rows, dim), found {values.shape}; reshape the tensor")
        return cls(*values.shape, values=values, frozen=freeze, **settings)

    def requires_grad_(self, requires_grad: bool = True) -> EmbeddingBag:
        """False freezes the table, True lets it train."""
        self.frozen = not requires_grad
        return super().requires_grad_(requires_grad)

    def __prepare_scriptable__(self) -> Any:
        raise InvalidValue(f"torch.jit.script: {_LEAVE_OUT}")

    @torch.compiler.disable(**_REASON)  # type: ignore[no-untyped-call, untyped-decorator]
    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Shapes as of torch.nn.EmbeddingBag: input (n,) with offsets (bags,), or input (bags, length) alone. Returns float32 (bags, dim).

        per_sample_weights, of the shape of the input, are rounded to float32.
        """
        if type(input).__name__ == "Proxy":
            raise InvalidType(f"torch.fx: {_LEAVE_OUT}, as a leaf of your Tracer")
        for name, tensor in (("input", input), ("offsets", offsets), ("per_sample_weights", per_sample_weights)):
            if tensor is None:
                continue
            found: Any = type(tensor).__name__ if not isinstance(tensor, Tensor) else "a nested tensor" if tensor.is_nested else tensor.layout
            if found is not torch.strided:
                raise InvalidType(f"{name}: wanted a dense tensor, found {found}; convert it by to_dense(), to_padded_tensor() or torch.as_tensor()")
            if name != "per_sample_weights" and (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool):
                raise InvalidValue(f"{name}: wanted whole numbers, found {tensor.dtype}; convert it to torch.int64")
        adds_last = input.dim() == 1 and not self.include_last_offset
        if input.dim() not in (1, 2):
            raise InvalidValue(f"input: wanted one or two dimensions, found {input.dim()}; reshape it")
        if (offsets is None) == (input.dim() == 1):
            found = "none" if offsets is None else "some with an input of two, whose rows are the bags"
            raise InvalidValue(f"offsets: wanted them with an input of one dimension alone, found {found}; correct the call")
        if offsets is None:
            offsets = torch.arange(input.shape[0] + 1, device="cpu") * input.shape[1]
            if per_sample_weights is not None and per_sample_weights.shape != input.shape:
                raise InvalidValue(f"per_sample_weights: wanted shape {tuple(input.shape)}, found {tuple(per_sample_weights.shape)}; reshape them")
        elif offsets.dim() != 1:
            raise InvalidValue(f"offsets: wanted one dimension, found {offsets.dim()}; reshape them")
        weights = None
        if per_sample_weights is not None:
            if self.mode != "sum":
                raise InvalidValue(f'per_sample_weights: wanted mode="sum" beside them, found {self.mode!r}; divide the sums yourself')
            if not per_sample_weights.is_floating_point():
                raise InvalidValue(f"per_sample_weights: wanted floats, found {per_sample_weights.dtype}; convert them")
            weights = per_sample_weights.reshape(-1)
        ends = _numpy("offsets", offsets)
        if adds_last:
            ends = np.append(ends.astype(np.int64), input.numel())
        home, indices, trains = input.device, input.reshape(-1), self.training and torch.is_grad_enabled() and not self.frozen
        if weights is not None and home.type != "cpu":
            weights = weights.cpu()
        if trains:
            self._may_train()
        if trains or (weights is not None and weights.requires_grad and torch.is_grad_enabled()):
            out: Tensor = _Look.apply(self, self._anchor if trains else None, weights, indices, offsets, ends)  # type: ignore[no-untyped-call]
        else:
            out = self._run(_numpy("input", indices), ends, weights, train=False)
        # Pinned where the device copies from there.
        return out if home.type == "cpu" else (out.pin_memory() if home.type in ("cuda", "xpu") else out).to(home, non_blocking=True)

    def _may_train(self) -> None:
        ranks, last = self._rows.ranks, self._last.forward
        if self._looks:
            raise OrderError("forward: wanted a bag that trains, found forward_only=True; call eval(), freeze it, or make it without forward_only")
        if ranks is None and not self._alone and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            found = f"{dist.get_world_size()} ranks of torch.distributed; call sync() on all of them, or sync(alone=True) to train a table on each"
            raise OrderError(f"forward: wanted sync() before training, found {found}")
        if self.update == "backward" and (self.group.pending or (ranks and last is not None and last() is not None)):
            self._give_up()

    def _run(self, indices: Any, offsets: Any, weights: Tensor | None, *, train: bool) -> Tensor:
        out = torch.empty(max(0, len(offsets) - 1), self.embedding_dim, dtype=torch.float32, device="cpu")
        call = self.group.forward if train else self.group.forward_frozen
        call(indices, offsets, None if weights is None else _numpy("per_sample_weights", weights, torch.float32), out.numpy())
        return out

    def _keep(self, ids: Any, bags: Any, weights: Tensor | None, grad: Tensor) -> None:
        """Adds the gradients of bags to those of their rows; over ranks without update="step", moves the table by them."""
        if self.group.config["out_of_range"] == "clamp":
            ids = ids.clip(max=self.num_embeddings - 1)
        used = (ids >= 0) & (ids < self.num_embeddings)
        if self.padding_idx is not None:
            used &= ids != self.padding_idx % self.num_embeddings
        ids, bags, weights = ids[used], bags[used], None if weights is None else weights[torch.from_numpy(used)]
        if self.mode == "mean" and len(bags):
            weights = torch.from_numpy((1 / np.bincount(bags)[bags]).astype(np.float32))
        self._rows.put((), [_deferred.merged(ids, bags, grad, weights)])
        if self.update == "backward":
            self._last.forward = None
            try:
                _deferred.step([self._rows], None, 1 / (self.grad_scaler.get_scale() if self.grad_scaler else 1), None, (), self.grad_scaler is not None)
            finally:
                self._rows.take()

    def step(self, scaler: Any = None, max_norm: float | None = None, parameters: Iterable[Tensor] = ()) -> bool:
        """hotrow.torch.step for this bag."""
        return step([self], scaler, max_norm, parameters)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients that wait for a step. A model that has the bag does not call it in its own zero_grad()."""
        super().zero_grad(set_to_none)
        self._rows.take()

    def sync(self, process_group: Any = None, *, alone: bool = False) -> None:
        """Makes the table one for all ranks of a process group (the default one by default). Once, before training, on all of them.

        The rows, the seed and the step of rank 0 go to all. Then each update has the mean of all ranks' gradients, and moves all tables alike, bit for bit:
        each backward is a call that all ranks make, with an empty batch too, or with update="step" each step. After a rank has failed the others raise
        OrderError within the timeout of the process group. alone=True: no other rank takes part, and each trains a table of its own.
        """
        self._rows.ranks, self._alone = None, alone
        if not alone:
            _deferred.sync(self._rows, process_group, self._device, {"update": self.update, "grad_scaler": self.grad_scaler is not None})
            self.group = self._rows.group

    def _give_up(self) -> None:
        """Discards the last forward: an exception came between it and its backward. If its outputs are still in use, that is not sure."""
        in_use = self._last.forward is not None and self._last.forward() is not None
        self.discard_pending()
        if in_use:
            remedy = "look up all bags of a step in one forward, or call again if an exception came between"
            raise OrderError(f"forward: wanted the backward of the last forward first, found its outputs still in use; it is given up now: {remedy}")
        if not self._last.warned:
            self._last.warned = True
            warnings.warn("hotrow: a forward had no backward, and is given up; look up in eval() or under torch.no_grad()", stacklevel=7)

    def discard_pending(self) -> None:
        """Gives up the backward of the last forward."""
        self.group.discard_pending()
        self._last.forward = None

    def set_learning_rate(self, rate: float) -> None:
        """Sets the learning rate from the next backward on."""
        self.group.set_learning_rate(rate)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self.state == "packed":
            with tempfile.TemporaryDirectory() as folder:
                self.group.save(path := os.path.join(folder, "group"))
                destination[prefix + "packed"] = torch.from_numpy(np.fromfile(path, np.uint8))
        else:
            self.group.flush()
            destination[prefix + "weight"] = torch.from_numpy(self.group.read_rows(np.arange(self.num_embeddings)))

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any, error_msgs: Any
    ) -> None:
        """Takes either form, whatever `state` says. Another one is a missing key, so that only a strict load raises."""
        known = [prefix + "packed", prefix + "weight"]
        unexpected_keys.extend(key for key in state_dict if strict and key.startswith(prefix) and key not in known)
        given = next((key for key in known if state_dict.get(key) is not None), None)
        if given is None:
            missing_keys.append(known[1])
            return
        try:
            (self._load_packed if given == known[0] else self._load_weight)(state_dict[given])
        except Exception as error:
            (refused := _Refused(given)).reason = str(error)
            missing_keys.append(refused)
            with suppress(Warning):  # of `python -W error`
                warnings.warn(f"hotrow: {refused}", stacklevel=2)

    def _load_weight(self, weight: Any) -> None:
        values, shape = _weights("weight", weight), (self.num_embeddings, self.embedding_dim)
        if values.shape != shape:
            raise InvalidValue(f"weight: wanted shape {shape}, found {values.shape}")
        if not np.isfinite(values).all():
            raise InvalidValue("weight: wanted finite numbers, found one that is not")
        self.group.write_rows(np.arange(self.num_embeddings), values)

    def _load_packed(self, packed: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "group")
            _native.as_array("packed", _numpy("packed", packed) if isinstance(packed, Tensor) else packed, "uint8").tofile(path)
            try:
                ours, group = self.group.config, self.group
                if self.frozen:
                    # Cache, policy, seed and the optimiser's states are those of the file: they need their place, whether they are used or not.
                    kept = "tables dim precision pooling padding features out_of_range placement".split()
                    group = Group._opened(path, "cpu" if group.device == "cpu" else "gpu", {name: ours[name] for name in kept})
                else:
                    rules = [of["optimizer"] for of in (json.loads(_native.saved_settings(path)), ours)]
                    if len({(rule["kind"], rule["own_count"]) for rule in rules}) > 1:
                        names = [rule["kind"].title().replace("_", "").replace("Sgd", "SGD").replace("Adagrad", "AdaGrad") for rule in rules]
                        more = [f"({rule['lr']:g}{', own_count=True' * rule['own_count']})" for rule in rules]
                        ask = [f"hotrow.{name}{of}" for name, of in zip(names, more)]
                        raise InvalidValue(f"packed: wanted optimizer={ask[0]}, which trained it, found {ask[1]}; name it, or frozen=True")
                    group.load(path)
            except FileError as error:
                text, _, _ = str(error).replace(f"checkpoint {path}", "packed").rpartition("; ")
                raise InvalidValue(f"{text}; give the bag the settings with which the state was saved, or take another state") from error
            self.group = self._rows.group = group

    def extra_repr(self) -> str:
        config = self.group.config
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode}, {config['precision']}, {config['cache_rows']} rows cached, {self.group.device}"
