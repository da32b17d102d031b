"""A torch.nn.Module over a hotrow.Group: its backward updates the table, as the fused optimisers of FBGEMM's TBE do."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import FileError, Group, InvalidType, InvalidValue, Normal, OrderError, Settings, _native

__all__ = ["EmbeddingBag"]
_RULES = dict(sgd="SGD", adagrad="AdaGrad", row_wise_adagrad="RowWiseAdaGrad", momentum="Momentum", adam="Adam", row_wise_adam="RowWiseAdam")


class _Token:
    """Lives as long as the graph of a forward."""


class _Last:
    """The last training forward. No attribute of the module, whose assignments cost microseconds."""

    forward: weakref.ref[_Token] | None = None
    warned: bool = False


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bag: EmbeddingBag, _anchor: Tensor, weights: Tensor | None, indices: Any, offsets: Any) -> Tensor:
        ctx.bag, ctx.batch, ctx.token = bag, (indices, offsets), _Token()
        # Before the call: an interrupt may come after it.
        bag._last.forward = weakref.ref(ctx.token)
        return bag._run(indices, offsets, weights, train=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor | None, None, None]:
        bag: EmbeddingBag = ctx.bag
        if bag._last.forward is None or bag._last.forward() is not ctx.token:
            raise OrderError("backward: wanted that of the last forward, found that of an earlier one, given up since; make one forward a step")
        grads = _numpy(grad, torch.float32)
        weight_grad = None
        if ctx.needs_input_grad[2]:
            indices, offsets = ctx.batch
            weight_grad = torch.from_numpy(bag.group.weight_gradient(indices, offsets, grads))
        bag.group.backward(grads)
        return None, None, weight_grad, None, None


class _Weigh(torch.autograd.Function):
    """A frozen look-up whose weights have a gradient."""

    @staticmethod
    def forward(ctx: Any, bag: EmbeddingBag, weights: Tensor, indices: Any, offsets: Any) -> Tensor:
        # The rows as they are now: until the backward a step may change them.
        ctx.rows, ctx.bags = bag._run(indices, np.arange(len(indices) + 1, dtype=np.uint32), None, train=False), np.diff(offsets)
        return bag._run(indices, offsets, weights, train=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None, None]:
        return None, (ctx.rows * grad.float().repeat_interleave(torch.from_numpy(ctx.bags), 0)).sum(1), None, None


def _numpy(tensor: Tensor, kind: torch.dtype | None = None) -> np.ndarray[Any, Any]:
    """The tensor's own memory, if it is on the CPU and of that kind."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        raise InvalidValue("torch.jit.trace: wanted torch's operators alone, found hotrow's; leave the module out")
    try:
        return (tensor if kind in (None, tensor.dtype) else tensor.to(kind)).numpy(force=True)
    except (RuntimeError, TypeError) as error:
        found = f"{type(tensor).__name__} of {tensor.dtype}, {tensor.layout}, on {tensor.device} ({error})"
        raise InvalidValue(f"tensor: wanted values that numpy reads, which those of torch.export lack, found {found}; convert it") from error


class _Refused(str):
    """The key of a state that was not taken: torch shows the reason if it is strict."""

    reason = ""

    def __format__(self, _: str) -> str:
        return f"{self!s}, which is there but was not taken: {self.reason}"


def _weights(name: str, given: Any) -> Any:
    """Weights as an array: a tensor's in float32, others as they are."""
    if isinstance(given, Tensor):
        if not given.is_floating_point():
            raise InvalidValue(f"{name}: wanted floats, found {given.dtype}; convert them")
        return _numpy(given.detach(), torch.float32)
    return _native.as_array(name, given)


class EmbeddingBag(torch.nn.Module):
    """As torch.nn.EmbeddingBag, but the table is a hotrow.Group: packed, cached, larger than the GPU if need be.

    The table is no parameter: the backward of a loss updates its rows by `optimizer` (a hotrow.SGD, AdaGrad, ...), so no optimiser of torch may have
    it. One forward a step: with several batches, look up all bags at once. Under torch.no_grad(), in eval(), and if it is frozen, nothing changes.

    mode: "sum" or "mean". precision, policy, placement, device, seed: as of hotrow.Group. cache: the share of the rows that the FP32 cache holds.
    Settings beyond `mode` are named. init: hotrow.Uniform, hotrow.Normal or a number; standard normal by default, as torch's. state: in state_dict the weights in FP32 ("fp32"), or a
    checkpoint with the packed rows, the cache and the optimiser's states ("packed"). settings: any other setting of hotrow.Group.

    Floats on the CPU are used where they lie. Tensors elsewhere (CUDA, XPU, MPS) are copied to the CPU and back, through pinned memory where there is some.
    The group may itself compute on a GPU: `device` says so, and is no device of torch's.
    """

    def __init__(
        self,
        num_embeddings: int,
        dim: int,
        mode: str = "mean",
        *,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        precision: str = "int8",
        cache: float = 0.05,
        optimizer: Settings | None = None,
        device: str = "auto",
        init: Settings | float | None = None,
        state: str = "fp32",
        frozen: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__()
        if mode not in ("sum", "mean"):
            raise InvalidValue(f'mode: wanted "sum" or "mean", found {mode!r}; hotrow has no other pooling')
        if state not in ("fp32", "packed"):
            raise InvalidValue(f'state: wanted "fp32" or "packed", found {state!r}; choose one of them')
        if not 0 <= cache <= 1:
            raise InvalidValue(f"cache: wanted a share of the rows from 0 to 1, found {cache}; 0.05 is 5 % of them")
        if taken := settings.keys() & {"cache_rows", "pooling", "padding"}:
            raise InvalidValue(f"settings: wanted cache, mode and padding_idx, found {min(taken)}; they stand for it here")
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise InvalidValue(f"padding_idx: wanted -{num_embeddings} to {num_embeddings - 1}, found {padding_idx}; name a row")
            settings["padding"] = [padding_idx % num_embeddings]
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, dim, mode
        self.include_last_offset, self.padding_idx, self.state, self.frozen = include_last_offset, padding_idx, state, frozen
        self.group = Group(
            [num_embeddings],
            dim,
            precision=precision,
            cache_rows=int(cache * num_embeddings),
            optimizer=optimizer,
            pooling=mode,
            device=device,
            init=Normal() if init is None and "values" not in settings else init,
            **settings,
        )
        # Autograd calls backward for it where no other input wants a gradient.
        self._anchor = torch.empty(0, requires_grad=True)
        self._last = _Last()

    @classmethod
    def from_pretrained(cls, embeddings: Tensor | NDArray[Any], *, freeze: bool = True, **settings: Any) -> EmbeddingBag:
        """The weights of a tensor or array of shape (rows, dim), or those of a torch.nn.EmbeddingBag: `from_pretrained(bag.weight)`."""
        values = _weights("embeddings", embeddings)
        if values.ndim != 2:
            raise InvalidValue(f"embeddings: wanted shape (rows, dim), found {values.shape}; reshape the tensor")
        return cls(*values.shape, values=values, frozen=freeze, **settings)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Shapes as of torch.nn.EmbeddingBag: input (n,) with offsets (bags,), or input (bags, length) alone. Returns float32 (bags, dim).

        per_sample_weights, of the shape of the input, are rounded to float32.
        """
        for name, tensor in (("input", input), ("offsets", offsets), ("per_sample_weights", per_sample_weights)):
            if tensor is not None and (found := getattr(tensor, "layout", type(tensor).__name__)) is not torch.strided:
                raise InvalidType(f"{name}: wanted a dense tensor, found {found}; convert it by to_dense() or torch.as_tensor()")
        if input.dim() == 2:
            if offsets is not None:
                raise InvalidValue("offsets: wanted none with an input of two dimensions, whose rows are the bags, found some; leave them out")
            bags, length = input.shape
            offsets = torch.arange(bags + 1, device="cpu") * length
            if per_sample_weights is not None and per_sample_weights.shape != input.shape:
                raise InvalidValue(f"per_sample_weights: wanted shape {tuple(input.shape)}, found {tuple(per_sample_weights.shape)}; reshape them")
        elif input.dim() != 1:
            raise InvalidValue(f"input: wanted one or two dimensions, found {input.dim()}; reshape it")
        elif offsets is None:
            raise InvalidValue("offsets: wanted them beside an input of one dimension, found none; pass them, or an input of two dimensions")
        elif not self.include_last_offset:
            offsets = torch.cat([offsets, offsets.new_tensor([input.numel()])])
        weights = None
        if per_sample_weights is not None:
            if self.mode != "sum":
                raise InvalidValue(f'per_sample_weights: wanted mode="sum" beside them, found {self.mode!r}; divide the sums yourself')
            if not per_sample_weights.is_floating_point():
                raise InvalidValue(f"per_sample_weights: wanted floats, found {per_sample_weights.dtype}; convert them")
            weights = per_sample_weights.reshape(-1)
        home, indices, ends = input.device, _numpy(input).reshape(-1), _numpy(offsets)
        if weights is not None and home.type != "cpu":
            weights = weights.cpu()
        if self.training and torch.is_grad_enabled() and not self.frozen:
            if self.group.pending:
                self._give_up()
            out: Tensor = _LookUp.apply(self, self._anchor, weights, indices, ends)  # type: ignore[no-untyped-call]
        elif weights is not None and weights.requires_grad and torch.is_grad_enabled():
            out = _Weigh.apply(self, weights, indices, ends)  # type: ignore[no-untyped-call]
        else:
            out = self._run(indices, ends, weights, train=False)
        # Pinned where the device copies from there.
        return out if home.type == "cpu" else (out.pin_memory() if home.type in ("cuda", "xpu") else out).to(home, non_blocking=True)

    def _run(self, indices: Any, offsets: Any, weights: Tensor | None, *, train: bool) -> Tensor:
        out = torch.empty(max(0, len(offsets) - 1), self.embedding_dim, dtype=torch.float32, device="cpu")
        call = self.group.forward if train else self.group.forward_frozen
        call(indices, offsets, None if weights is None else _numpy(weights, torch.float32), out.numpy())
        return out

    def _give_up(self) -> None:
        """Discards the last forward: an exception came between it and its backward. If its outputs are still in use, that is not sure."""
        in_use = self._last.forward is not None and self._last.forward() is not None
        self.discard_pending()
        if in_use:
            raise OrderError(
                "forward: wanted the backward of the last forward first, found its outputs still in use; it is given up now: look up all bags of a "
                "step in one forward, or call again if an exception came between"
            )
        if not self._last.warned:
            self._last.warned = True
            warnings.warn("hotrow: a forward had no backward, and is given up; look up in eval() or under torch.no_grad()", stacklevel=6)

    def discard_pending(self) -> None:
        """Gives up the backward of the last forward."""
        self.group.discard_pending()
        self._last.forward = None

    def set_learning_rate(self, rate: float) -> None:
        """Sets the learning rate from the next backward on."""
        self.group.set_learning_rate(rate)

    def _checkpoint(self) -> Tensor:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "group")
            self.group.save(path)
            return torch.from_numpy(np.fromfile(path, np.uint8))

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self.state == "packed":
            destination[prefix + "packed"] = self._checkpoint()
        else:
            self.group.flush()
            rows = np.arange(self.num_embeddings, dtype=np.uint32)
            destination[prefix + "weight"] = torch.from_numpy(self.group.read_rows(rows))

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
            warnings.warn(f"hotrow: {refused}", stacklevel=2)

    def _load_weight(self, weight: Any) -> None:
        values, shape = _weights("weight", weight), (self.num_embeddings, self.embedding_dim)
        if values.shape != shape:
            raise InvalidValue(f"weight: wanted shape {shape}, found {values.shape}")
        if not np.isfinite(values).all():
            raise InvalidValue("weight: wanted finite numbers, found one that is not")
        self.group.write_rows(np.arange(self.num_embeddings, dtype=np.uint32), values)

    def _load_packed(self, packed: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "group")
            _native.as_array("packed", _numpy(packed) if isinstance(packed, Tensor) else packed, "uint8").tofile(path)
            try:
                saved, ours, group = json.loads(_native.saved_settings(path)), self.group.config, self.group
                rules = [of["optimizer"] for of in (saved, ours)]
                is_other = len({(rule["kind"], rule["own_count"]) for rule in rules}) > 1
                if self.frozen and (is_other or saved["state"] != ours["state"]):
                    # The states need their place in the rows, whether they are used or not.
                    ours |= dict(optimizer=rules[0], state=saved["state"], init=0.0)
                    del ours["stripe"]
                    group = Group(ours.pop("tables"), ours.pop("dim"), device="cpu" if group.device == "cpu" else "gpu", **ours)
                elif is_other:
                    ask = [f"hotrow.{_RULES[rule['kind']]}({rule['lr']:g}{', own_count=True' * rule['own_count']})" for rule in rules]
                    raise InvalidValue(f"packed: wanted optimizer={ask[0]}, which trained it, found {ask[1]}; name it, or frozen=True")
                group.load(path)
            except FileError as error:
                text, _, _ = str(error).replace(f"checkpoint {path}", "packed").rpartition("; ")
                raise InvalidValue(f"{text}; give the bag the settings with which the state was saved, or take another state") from error
            self.group = group

    def extra_repr(self) -> str:
        config = self.group.config
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode}, {config['precision']}, {config['cache_rows']} rows cached, {self.group.device}"
