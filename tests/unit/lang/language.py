"""Running programs of the language in tests: with known sizes, and with sizes as symbols."""

from __future__ import annotations

from typing import Any

import numpy

from anydim.base.dtypes import from_numpy
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, Dim, Size, as_size


def known(array: numpy.ndarray) -> TensorType:
    return TensorType(from_numpy(array.dtype), tuple(as_size(size) for size in array.shape))


def group_of(text: str, *arrays: Any, **attributes: Any) -> Group:
    """The group of a definition for arrays whose sizes are known."""
    return instantiate(parse_definition(text), [known(a) for a in arrays], attributes)


def run(text: str, *arrays: Any, precision: Any = None, **attributes: Any) -> Any:
    """The first result of a definition, with known sizes."""
    definition = parse_definition(text)
    group = group_of(text, *map(numpy.asarray, arrays), **attributes)
    tensors = dict(zip((p.name for p in definition.parameters), arrays))
    return evaluate(group, tensors, {}, precision)[definition.results[0]]


def run_symbolic(text: str, *arrays: Any, shared: bool = True, **attributes: Any) -> Any:
    """The first result, from a group made while every size was a symbol from 0 up.

    With `shared`, dimensions of equal size are one dim; else every dimension is a dim of its own.
    """
    sizes: dict[str, int] = {}
    types = []
    for array in map(numpy.asarray, arrays):
        shape = []
        for size in array.shape:
            name = f"d{size}" if shared else f"d{len(sizes)}"
            sizes[name] = size
            shape.append(Size.symbol(name))
        types.append(TensorType(from_numpy(array.dtype), tuple(shape)))
    definition = parse_definition(text)
    box = Box.of(*(Dim(name, 0) for name in sizes))
    group = instantiate(definition, types, attributes, box)
    tensors = dict(zip((p.name for p in definition.parameters), arrays))
    return evaluate(group, tensors, sizes)[definition.results[0]]


def check(text: str, expected: Any, *arrays: Any, **attributes: Any) -> None:
    """All three ways of running a definition give the expected array, shape and dtype included."""
    expected = numpy.asarray(expected)
    for result in (
        run(text, *arrays, **attributes),
        run_symbolic(text, *arrays, **attributes),
        run_symbolic(text, *arrays, shared=False, **attributes),
    ):
        assert result.shape == expected.shape
        assert result.dtype == expected.dtype
        numpy.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def random(*shape: int, dtype: str = "float32") -> Any:
    """Reproducible numbers, different for different shapes."""
    rng = numpy.random.default_rng(sum(shape) + 31 * len(shape))
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype == "bool" else 50, shape).astype(dtype)


def assert_same(found, wanted, rtol=1e-6):
    """Compare tensors, or structures field by field; they may be deep."""
    waiting = [(found, wanted)]
    while waiting:
        one, other = waiting.pop()
        if isinstance(other, tuple):
            assert one[0] == other[0] and len(one) == len(other)
            waiting += zip(one[1:], other[1:])
        else:
            assert numpy.shape(one) == numpy.shape(other)
            numpy.testing.assert_allclose(one, other, rtol=rtol)
