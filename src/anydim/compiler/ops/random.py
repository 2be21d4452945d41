"""TC texts of the random number operators: Philox 2x32-10, identical on every machine.

Element e (row-major) of a result uses the two 32-bit outputs of ten rounds on the counter e under
the key `seed` (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011).
Each call with the same seed gives the same numbers.
"""

from __future__ import annotations

from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    declared,
    definition,
    expect_inputs,
    numbered,
    ranges,
    read,
    sizes_as_attributes,
    target,
)
from anydim.sizes import Box

_MULTIPLIER = 0xD256D193
_STEP = 0x9E3779B9  # added to the key in each round
_ROUNDS = 10
_WORD = 0xFFFFFFFF


def random_uniform(types: Types, attributes: Attributes, box: Box) -> Written:
    """Uniformly distributed numbers in [`low`, `high`)."""
    low, high = attributes["low"], attributes["high"]
    value = f"({low!r}) + {_unit(attributes)} * ({high - low!r})"
    return _written("random_uniform", types, attributes, value)


def random_normal(types: Types, attributes: Attributes, box: Box) -> Written:
    """Normally distributed numbers (Box-Muller)."""
    radius = "sqrt(-2.0 * log((cast<double>({a}) + 1.0) / 4294967296.0))"
    cosine = "cos(cast<double>({b}) * 1.4629180792671596e-9)"
    value = f"({attributes['mean']!r}) + {radius} * {cosine} * ({attributes['scale']!r})"
    return _written("random_normal", types, attributes, value)


def _unit(attributes: Attributes) -> str:
    """A number in [0, 1) with all random bits that fit: 53 from both outputs, or 24 from one."""
    if attributes["dtype"].bits == 64:
        high, low = "cast<double>({a} >> 6) * 134217728.0", "cast<double>({b} >> 5)"
        return f"({high} + {low}) / 9007199254740992.0"
    bits = 24 if attributes["dtype"].bits == 32 else 11
    return f"(cast<double>({{a}} >> {32 - bits}) / {float(1 << bits)!r})"


def _written(name: str, types: Types, attributes: Attributes, value: str) -> Written:
    expect_inputs(name, types, 0, 0)
    shape, dtype, seed = attributes["shape"], attributes["dtype"], attributes["seed"]
    indices, names = numbered("i", len(shape)), numbered("S", len(shape))
    where = ranges(zip(indices, names))
    offset = indices[0] if indices else "0"
    for index, size in zip(indices[1:], names[1:]):
        offset = f"({offset}) * {size} + {index}"
    number = f"cast<uint64>({offset})"
    statements = [
        f"{target('a0', indices)} = {number} & {_WORD}{where}",
        f"{target('b0', indices)} = {number} >> 32{where}",
    ]
    key = seed & _WORD
    for step in range(_ROUNDS):
        a, b = read(f"a{step}", indices), read(f"b{step}", indices)
        product = read(f"p{step}", indices)
        statements += [
            f"{target(f'p{step}', indices)} = {a} * {_MULTIPLIER}{where}",
            f"{target(f'a{step + 1}', indices)} = ({product} >> 32) ^ {b} ^ {key}{where}",
            f"{target(f'b{step + 1}', indices)} = {product} & {_WORD}{where}",
        ]
        key = (key + _STEP) & _WORD
    words = {"a": read(f"a{_ROUNDS}", indices), "b": read(f"b{_ROUNDS}", indices)}
    body = f"cast<{dtype}>({value.format(**words)})"
    statements.append(f"{target('y', indices)} = {body}{where}")
    text = definition(name, [], statements, declared(names))
    return Written(text, sizes_as_attributes("S", shape))
