"""An entry of torch's operator database as modules with inputs, and inputs of other sizes.

Every axis of every tensor is free (`Dim.AUTO`); torch fixes the axes that the operator fixes. An
input of another size holds elements of the sample, drawn at random, so that it stays in the domain.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export import Dim, ExportedProgram

GROWTHS = ((1, 2), (2, 5))  # (per symbol: times, plus a bit) of the other sizes
_MOST_ELEMENTS = 4096
_CRASHES = ("nn.functional.embedding_bag",)  # eager torch ends the process without bags
_SYMMETRIC = ("cholesky", "eigh", "eigvalsh", "positive", "lobpcg", "ldl", "logdet", "slogdet")


class Call(torch.nn.Module):
    """An operator with its sample's numbers, as a module of its tensors."""

    def __init__(self, entry: Any, sample: Any) -> None:
        super().__init__()
        self.entry = entry
        leaves, self.spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self.fixed = [None if torch.is_tensor(leaf) else leaf for leaf in leaves]
        self.places = [n for n, leaf in enumerate(leaves) if torch.is_tensor(leaf)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.fixed)
        for place, tensor in zip(self.places, tensors):
            leaves[place] = tensor
        first, rest, named = pytree.tree_unflatten(leaves, self.spec)
        return self.entry.op(first, *rest, **named)


@dataclass(frozen=True)
class Case:
    """A sample of an entry: a module, and its tensors."""

    module: Call
    tensors: tuple[torch.Tensor, ...]
    normalised: Any = None  # a function of results that are not unique, as vectors up to a sign

    def results(self, made: Any) -> list[Any]:
        """The results to compare."""
        return pytree.tree_leaves(made if self.normalised is None else self.normalised(made))


@cache
def entries() -> dict[str, Any]:
    """The entries of the database by name and variant."""
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, Any] = {}
    for entry in op_db:
        name = entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")
        found[name] = entry
    return found


def cases(name: str, dtype: torch.dtype, count: int) -> Iterator[Case]:
    """Up to `count` samples of an entry, spread over all of them."""
    entry = entries()[name]
    if dtype not in entry.supported_dtypes("cpu"):
        return
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(itertools.islice(entry.sample_inputs("cpu", dtype), 60))
    able = [sample for sample in samples if _is_usual(sample)] or samples
    step = max(1, len(able) // count)
    for sample in able[::step][:count]:
        leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
        tensors = tuple(leaf.detach().clone() for leaf in leaves if torch.is_tensor(leaf))
        yield Case(Call(entry, sample), tensors, sample.output_process_fn_grad)


def _is_usual(sample: Any) -> bool:
    """Whether a sample has tensors with axes and elements."""
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    tensors = [leaf for leaf in leaves if torch.is_tensor(leaf)]
    return any(t.dim() for t in tensors) and all(0 < t.numel() < _MOST_ELEMENTS for t in tensors)


def export(case: Case) -> ExportedProgram:
    """The case with free axes. Raises whatever torch raises."""
    shapes = tuple(
        {axis: Dim.AUTO for axis in range(tensor.dim()) if tensor.shape[axis] > 1}
        for tensor in case.tensors
    )
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return torch.export.export(case.module, case.tensors, dynamic_shapes=(shapes,))


def resized(program: ExportedProgram, case: Case, growth: int | None) -> tuple[Any, ...] | None:
    """Tensors of another size: number `growth` of `GROWTHS`, or empty for None.

    None if no axis is free, or if eager torch crashes with an empty input.
    """
    if growth is None and case.module.entry.name in _CRASHES:
        return None
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    users = {spec.arg.name for spec in program.graph_signature.input_specs
             if spec.kind.name == "USER_INPUT"}  # fmt: skip
    fakes = [node.meta["val"] for node in placeholders if node.name in users]
    sizes = _sizes(program, fakes, growth)
    if not sizes:
        return None
    torch.manual_seed(1 if growth is None else 2 + growth)
    tensors = []
    for fake, tensor in zip(fakes, case.tensors):
        shape = [_value(size, sizes) for size in fake.shape]
        made = tensor if shape == list(tensor.shape) else _drawn(tensor, shape)
        if made is not tensor and any(word in case.module.entry.name for word in _SYMMETRIC):
            made = _positive_definite(made)
        tensors.append(made)
    return tuple(tensors)


def _sizes(program: ExportedProgram, fakes: list[Any], growth: int | None) -> dict[Any, int]:
    """A new size for each symbol, within its range."""
    symbols: dict[Any, int] = {}
    for fake in fakes:
        for size in fake.shape:
            if isinstance(size, torch.SymInt):
                hint = {s: int(size.node.shape_env.backed_var_to_val[s])
                        for s in size.node.expr.free_symbols}  # fmt: skip
                symbols.update(hint)
    found = {}
    for number, (symbol, hint) in enumerate(sorted(symbols.items(), key=lambda item: str(item[0]))):
        bounds = program.range_constraints.get(symbol)
        if growth is None:
            size = 0 if number == 0 else hint
        else:
            times, plus = GROWTHS[growth]
            size = hint * times + plus + number
        high = None if bounds is None else bounds.upper
        low = 0 if bounds is None or bounds.lower <= 2 else int(bounds.lower)
        size = max(size, low)
        found[symbol] = size if high is None or str(high) == "int_oo" else min(size, int(high))
    return found


def _value(size: Any, sizes: dict[Any, int]) -> int:
    if not isinstance(size, torch.SymInt):
        return int(size)
    return int(size.node.expr.xreplace(sizes))


def _drawn(tensor: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """A tensor of a shape with elements of another one; floats move a little."""
    flat = tensor.reshape(-1)
    count = 1
    for size in shape:
        count *= size
    if not flat.numel():
        return torch.zeros(shape, dtype=tensor.dtype)
    made = flat[torch.randint(flat.numel(), (count,))].reshape(shape)
    if _is_offsets(tensor):
        made[:1] = 0
        made = made.sort().values
    if made.is_floating_point() and made.dtype.itemsize >= 4:
        made = made * (1 + 0.05 * torch.rand(shape, dtype=made.dtype))
    return made.contiguous()


def _is_offsets(tensor: torch.Tensor) -> bool:
    """Whether integers may be the offsets of parts: in order, from 0 on."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dim() != 1:
        return False
    return tensor.dtype != torch.bool and not tensor[0] and bool((tensor.diff() >= 0).all())


def _positive_definite(made: torch.Tensor) -> torch.Tensor:
    """Square matrices made symmetric, with positive eigenvalues."""
    if made.dim() < 2 or made.shape[-1] != made.shape[-2] or not made.is_floating_point():
        return made
    unit = torch.eye(made.shape[-1], dtype=made.dtype)
    return made @ made.mT / max(1, made.shape[-1]) + unit
