"""Checks the arguments of `map` against a model: batch dim, padding, outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy

from anydim.base.errors import OptionError
from anydim.base.text import quote_list, suggestion
from anydim.base.user_values import by_names, short_repr, text_of
from anydim.runtime.program.batches.layout import Layout
from anydim.runtime.program.binding import determined_dims, solve
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Size


def batch_layout(
    signature: Signature, batch: str | None, pad: Mapping[str, Any] | None,
    outputs: Sequence[str] | None,
) -> Layout:  # fmt: skip
    """Return how items of a model are batched; raises OptionError if they cannot be.

    The default `batch` is the first dim that is axis 0 of all inputs and outputs.
    """
    pad = by_names("pad", pad)
    if batch is not None:
        text_of("batch", batch)
    wanted = wanted_results(signature, outputs)
    dims = determined_dims(signature.box, signature.inputs, frozenset())
    found = batch if batch is not None else _usual(signature, wanted, dims)
    sources = solve(signature, frozenset())
    if found is None:
        if pad:
            raise OptionError(
                f"{signature.name}: padding needs a batch dim, and there is none",
                "no dim is axis 0 of all inputs and outputs; name one: batch='...'",
            )
        none = (None,) * len(signature.inputs)
        return Layout(signature, None, none, tuple((s, None) for s in wanted), {}, (), sources)
    if found not in signature.box.names:
        hint = suggestion(found, signature.box.names)
        raise OptionError(f"{signature.name} has no dim '{found}' to batch items along",
                          hint or f"its dims are {quote_list(signature.box.names)}")  # fmt: skip
    axes = tuple(
        axis_of(signature.name, "input", spec, found) if _has(spec, found) else None
        for spec in signature.inputs
    )
    results = tuple((spec, axis_of(signature.name, "output", spec, found)) for spec in wanted)
    for spec, _ in results:
        _check_known(signature.name, spec, dims)
    padded = _padded(signature, pad, found)
    return Layout(signature, found, axes, results, pad, padded, sources)


def joinable(signature: Signature) -> list[str]:
    """Return the dims along which calls can be joined."""
    found = []
    for dim in signature.box.dims:
        if dim.lo != dim.hi and any(_has(spec, dim.name) for spec in signature.inputs):
            with suppress(OptionError):
                batch_layout(signature, dim.name, None, None)
                found.append(dim.name)
    return found


def wanted_results(signature: Signature, names: Sequence[str] | None) -> list[TensorSpec]:
    """Return the results of these names, all for None; raises OptionError for unknown names."""
    known = {spec.key: spec for spec in signature.outputs}
    if names is None:
        return list(known.values())
    asked = names if isinstance(names, (list, tuple, set, frozenset)) else (names,)
    for name in asked:
        if text_of("the name of a result", name) not in known:
            hint = suggestion(name, known) or f"its results are {quote_list(known)}"
            raise OptionError(f"{signature.name} has no result '{name}'", hint)
    return [known[name] for name in asked]


def _usual(signature: Signature, wanted: Sequence[TensorSpec], dims: frozenset[str]) -> str | None:
    """Return the dim that is axis 0 of all tensors and no other axis of any."""
    for dim in signature.box.dims:
        if dim.name in dims and all(
            [axis for axis, size in enumerate(spec.shape) if dim.name in size.symbols] == [0]
            and spec.shape[0] == dim.size and all(size.symbols <= dims for size in spec.shape)
            for spec in (*signature.inputs, *wanted)
        ):  # fmt: skip
            return dim.name
    return None


def _has(spec: TensorSpec, dim: str) -> bool:
    return any(dim in size.symbols for size in spec.shape)


def axis_of(model: str, noun: str, spec: TensorSpec, batch: str) -> int:
    """Return the only axis of a tensor that is the batch; raises OptionError without it."""
    axes = [axis for axis, size in enumerate(spec.shape) if batch in size.symbols]
    if len(axes) == 1 and spec.shape[axes[0]] == Size.symbol(batch):
        return axes[0]
    raise OptionError(
        f"{model}: {noun} {spec} needs exactly one axis '{batch}'",
        "items are concatenated, and results split, along one axis of every input and output",
    )


def _check_known(model: str, spec: TensorSpec, dims: frozenset[str]) -> None:
    for size in spec.shape:
        if not size.symbols <= dims:
            raise OptionError(
                f"{model}: output '{spec.key}' has size {size}, which data decides",
                "its rows cannot be assigned to items; call the model for each item",
            )


def _padded(signature: Signature, pad: Mapping[str, Any], batch: str) -> tuple[str, ...]:
    """Return the dims along which items may differ: those of all inputs with a fill value."""
    specs = {spec.name: spec for spec in signature.inputs}
    for name, fill in pad.items():
        if name not in specs:
            hint = suggestion(name, specs) or f"its inputs are {quote_list(specs)}"
            raise OptionError(f"{signature.name} has no input '{name}' to pad", hint)
        _check_fill(specs[name], fill)
    symbols = {name: frozenset().union(*(size.symbols for size in spec.shape))
               for name, spec in specs.items()}  # fmt: skip
    dims = frozenset().union(*(symbols[name] for name in pad)) - {batch}
    for name in specs:
        if symbols[name] & dims and name not in pad:
            (dim, *_) = sorted(symbols[name] & dims)
            raise OptionError(
                f"{signature.name}: input '{name}' has the padded dim '{dim}', but no fill value",
                f"add a fill value: pad={{..., {name!r}: 0}}",
            )
    return tuple(name for name in signature.box.names if name in dims)


def _check_fill(spec: TensorSpec, fill: Any) -> None:
    try:
        held = numpy.asarray(fill)
        made = held.astype(spec.dtype.numpy)
        fits = held.ndim == 0 and bool(made == held or spec.dtype.is_float or held != held)
    except Exception:  # any error of the object
        fits = False
    if not fits:
        raise OptionError(
            f"input '{spec.name}' is padded with {short_repr(fill)}, not of type {spec.dtype}",
            "give a number of its type",
        )
