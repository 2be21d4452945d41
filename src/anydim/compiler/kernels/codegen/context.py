"""State shared by the code of one function: tensors, sizes, names, and facts about rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import reduce
from operator import and_, or_

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.launch import Machine
from anydim.lang.tree import Expr, TensorType
from anydim.sizes import Condition, Size, as_size


def condition_flag(condition: Condition, compare: Callable[[Size, str, int], ir.Value]) -> ir.Value:
    """A condition as a flag of the kernel; `compare` compares a size with a number."""
    if condition.constant is not None:
        return ir.Const(ir.FLAG, int(condition.constant))
    joined, conditions = condition.operands
    if joined:
        parts = (condition_flag(each, compare) for each in conditions)
        return reduce(and_ if joined == "and" else or_, parts)
    return compare(*condition.limit)


def _compare(value: ir.Value, relation: str, number: int) -> ir.Value:
    return value <= number if relation == "<=" else value >= number


class SizeParameters:
    """The size expressions that a kernel takes as int64 parameters, in order of first use."""

    def __init__(self) -> None:
        self._names: dict[Size, str] = {}

    def value(self, size: Size | int) -> ir.Value:
        """A size as an int64 scalar: a constant, or a parameter p0, p1, ..."""
        size = as_size(size)
        if size.constant is not None:
            return ir.Const(ir.INDEX, size.constant)
        name = self._names.setdefault(size, f"p{len(self._names)}")
        return ir.Var(ir.INDEX, name)

    def holds(self, condition: Condition) -> ir.Value:
        """A condition as a flag; a parameter that is 1 where it holds, else 0."""
        return self.value(condition.flag).differs(0)

    def condition_flag(self, condition: Condition) -> ir.Value:
        """A condition as a flag that the kernel computes, by comparing its sizes with numbers.

        It has no parameter of its own where the sizes are parameters already, or differ from one
        by a number.
        """
        return condition_flag(condition, self._compare_size)

    def _compare_size(self, size: Size, relation: str, number: int) -> ir.Value:
        for known in self._names:
            apart = (known - size).constant
            if apart is not None:
                return _compare(self.value(known), relation, number + apart)
        return _compare(self.value(size), relation, number)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._names.values())

    @property
    def sizes(self) -> tuple[Size, ...]:
        return tuple(self._names)


class Level:
    """What one level of a loop nest has computed: its steps, and values broadcast to lanes."""

    __slots__ = ("spread", "steps")

    def __init__(self) -> None:
        self.steps: list[ir.Step] = []
        self.spread: dict[tuple[ir.Value, int], ir.Value] = {}


@dataclass
class Context:
    """State shared by all scalar lowering of one function. `buffers` maps tensors to buffer names.

    `running`: every loop around this code runs at least once, so any read may be hoisted out of the
    loops it does not depend on. Vectors start at multiples of `step` unless it is 0. `totals` maps
    sums of nonnegative expressions to these expressions, `peaks` maps maxima to their arguments
    (`value_bounds.py`). `inside` holds (index, extent) pairs that are in bounds here. `failed`
    names the register that is set when a check fails ('' for none). `nontemporal` is true where
    results bypass the caches; None: never. `homes` maps named values to the levels that name them.
    """

    types: Mapping[str, TensorType]
    sizes: SizeParameters
    machine: Machine
    buffers: Mapping[str, str] = field(default_factory=dict)
    running: bool = False
    step: int = 0
    totals: Mapping[str, Expr] = field(default_factory=dict)
    peaks: Mapping[str, Expr] = field(default_factory=dict)
    inside: frozenset[tuple[Expr, Size]] = frozenset()
    failed: str = ""
    nontemporal: ir.Value | None = None
    _used: dict[str, int] = field(default_factory=dict)
    homes: dict[str, Level] = field(default_factory=dict)

    def fresh(self, prefix: str = "v") -> str:
        """A name that this function does not use yet."""
        number = self._used.get(prefix, 0)
        self._used[prefix] = number + 1
        return f"{prefix}{number}"
