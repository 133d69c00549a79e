"""A device that exists nowhere: tensors on it are computed on the CPU, and mistakes with devices fail as on a GPU.

    with OtherDevice() as device:
        z = torch.ones(3).to(DEVICE)
        z + torch.arange(3)                # refused: operands on two devices
        z.numpy()                          # refused, as that of a tensor on a GPU
    device.waits                           # lines of the package where the host waits for the device, with their counts

Torch knows the device as `meta`. What a GPU accepts is accepted: numbers (tensors without dimensions) and indices that
are on the host. A copy from the host and a question to the device, such as `item`, `nonzero` and a mask as an index,
each make the host wait.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("meta")
_COPIES = ("aten._to_copy", "aten.to.", "aten.copy_")
_INDICES = ("aten.index.Tensor", "aten.index_put", "aten._index_put_impl_")
_HOST_SIZES = ("aten.lstm.data", "aten._pack_padded_sequence")
"""Operations that take sizes on the host."""
_QUESTIONS = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.repeat_interleave.Tensor")


class AwayTensor(Tensor):
    """A tensor of the other device; `numbers` has its numbers."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, real: Tensor) -> AwayTensor:
        made: AwayTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, real.shape, strides=real.stride(), dtype=real.dtype, device=DEVICE, requires_grad=False
        )
        made.numbers = real
        return made

    def tolist(self) -> Any:
        """As that of a tensor on a GPU, which torch does not allow of its own."""
        return self.cpu().tolist()

    def __repr__(self, **options: Any) -> str:
        return f"AwayTensor({self.numbers!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} of a tensor of the other device, outside of OtherDevice")


class OtherDevice(TorchDispatchMode):
    """Inside, tensors can be on the other device."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.calls = 0
        """Operations on the device, each a kernel or more."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), str(func)
        target = next((leaf for leaf in [*args, *kwargs.values()] if isinstance(leaf, torch.device)), None)
        args, kwargs = tree_map_only(torch.device, lambda device: torch.device("cpu"), (args, kwargs))
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        away = any(isinstance(tensor, AwayTensor) for tensor in tensors)
        goes_away = away if target is None else target == DEVICE
        if not away and not goes_away:
            return func(*args, **kwargs)
        self.calls += goes_away
        self._check(name, args, kwargs, tensors, goes_away)
        result = func(*_home(args), **_home(kwargs))
        if not goes_away:
            return result
        with torch.inference_mode(False):
            wrapped = tree_map_only(Tensor, lambda tensor: AwayTensor(tensor), result)
            return return_and_correct_aliasing(func, args, kwargs, wrapped) if away else wrapped

    def _check(self, name: str, args: Sequence[Any], kwargs: Any, tensors: Sequence[Tensor], goes_away: bool) -> None:
        away = any(isinstance(tensor, AwayTensor) for tensor in tensors)
        home = [tensor for tensor in tensors if not isinstance(tensor, AwayTensor) and tensor.ndim]
        copies, indexes = name.startswith(_COPIES), name.startswith(_INDICES)
        if indexes and not isinstance(args[0], AwayTensor):
            raise RuntimeError(f"{name}: a tensor on the host is indexed by one on the device, {_line()}")
        if home and away and not copies and not indexes and not name.startswith(_HOST_SIZES):
            raise RuntimeError(f"{name}: operands on two devices, {_line()}")
        asked = name.startswith(_QUESTIONS) and kwargs.get("output_size") is None
        masks = indexes and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        if asked or masks or (copies and (home or not goes_away)) or (indexes and home):
            self.waits[f"{_line()} {name}"] += 1


def _home(tree: Any) -> Any:
    return tree_map_only(AwayTensor, lambda tensor: tensor.numbers, tree)


def _line() -> str:
    """Where the package is, innermost; a backward pass is outside of it."""
    frames = [frame for frame in traceback.extract_stack() if "/larvatus/" in frame.filename]
    return f"{frames[-1].filename.split('/larvatus/')[-1]}:{frames[-1].lineno}" if frames else "outside:"


def moved_away(module: torch.nn.Module) -> None:
    """Put the weights of a module on the other device; inside `OtherDevice`."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            part._parameters[name] = torch.nn.Parameter(parameter.detach().to(DEVICE))
        for name, buffer in part.named_buffers(recurse=False):
            part._buffers[name] = buffer.to(DEVICE)


def no_autocast(real: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.autocast`, which does not know the other device: full precision there."""
    return lambda kind, *args, **kwargs: nullcontext() if kind == DEVICE.type else real(kind, *args, **kwargs)
