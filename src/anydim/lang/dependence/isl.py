"""The same dependence tests by isl, the integer set library, if it is installed.

A set holds the loop and axis values of two accesses to the same element; symbols of sizes are
parameters. A product of symbols is a parameter of its own, and constraints that isl cannot express
are dropped: an empty set is a proof, a non-empty one is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache, partial
from typing import Any

from anydim.base.records import dataclass
from anydim.lang.dependence.accesses import Access, Instance, LoopAt, without_check
from anydim.lang.tree import Apply, Expr, Index, Literal, SizeTerm
from anydim.lang.tree.affine import rewrite
from anydim.sizes import Atom, Box, Factor, Size

_RELATIONS = {
    "equal": "=", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
    "greater_equal": ">=",
}  # fmt: skip


def available() -> bool:
    """Whether isl is installed."""
    return _isl() is not None


@cache
def _isl() -> Any:
    """Import isl at its first use: the import takes a tenth of the time of anydim's own."""
    try:
        import islpy
    except ImportError:
        return None
    return islpy


def may_alias(
    first: Access, second: Access, same: tuple[LoopAt, ...], at: LoopAt | None, box: Box,
    later: bool | None = None,
) -> bool:  # fmt: skip
    """Whether two accesses may alias while the loops `same` are at the same iteration.

    With `at`, at different iterations of that loop; `later` selects the order of the two.
    """
    query = _Query(box)
    left = query.side(first, "a")
    right = query.side(second, "b")
    wanted = [f"{left[o.number]} = {right[o.number]}" for o in same]
    if at is not None:
        a, b = left[at.number], right[at.number]
        relation = "!=" if later is None else "<" if later == (at.loop.step > 0) else ">"
        wanted.append(f"{a} {relation} {b}")
    wanted += query.equal_indices(first, second)
    return not query.empty(wanted)


class _Unsupported(Exception):
    """Raised for an expression that isl cannot represent."""


@dataclass
class _Query:
    """Variables, parameters and constraints of one query."""

    box: Box
    parameters: dict[str, str] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    names: dict[str, dict[object, str]] = field(default_factory=dict)

    def side(self, access: Access, mark: str) -> dict[object, str]:
        """Add the variables of an access with their ranges: loops by number, axes by name."""
        names: dict[object, str] = {}
        inside: dict[str, str] = {}
        self.names[mark] = names
        for at in access.instance.loops:
            name = self._variable(f"{mark}{at.number}l")
            self._bounds(at, name, inside)
            names[at.number] = inside[at.variable] = name
        for number, axis in enumerate(access.instance.axes):
            name = self._variable(f"{mark}{number}x")
            names[axis.name] = name
            self._keep(partial(self._below, name, axis.extent, inside))
        self._conditions(access.instance, inside)
        return names

    def _variable(self, name: str) -> str:
        self.variables.append(name)
        return name

    def _bounds(self, at: LoopAt, name: str, inside: Mapping[str, str]) -> None:
        loop, around = at.loop, dict(inside)
        up = loop.step > 0
        self._keep(lambda: f"{name} {'>=' if up else '<='} {self._expr(loop.start, around, {})}")
        self._keep(lambda: f"{name} {'<' if up else '>'} {self._expr(loop.stop, around, {})}")
        if abs(loop.step) != 1:
            iteration = self._variable(f"{name}k")
            self._keep(
                lambda: f"{name} = {self._expr(loop.start, around, {})} + {loop.step} * {iteration}"
            )

    def _conditions(self, instance: Instance, inside: Mapping[str, str]) -> None:
        for condition, holds in instance.conditions:
            if isinstance(condition, Apply) and condition.function in _RELATIONS:
                self._keep(partial(self._condition, condition, holds, inside))

    def _below(self, name: str, extent: Size, inside: Mapping[str, str]) -> str:
        return f"0 <= {name} < {self._size(extent, inside)}"

    def _condition(self, condition: Apply, holds: bool, inside: Mapping[str, str]) -> str:
        left, right = (self._expr(a, inside, {}) for a in condition.arguments)
        relation = _RELATIONS[condition.function]
        return f"{'' if holds else 'not '}({left} {relation} {right})"

    def _keep(self, text: Callable[[], str]) -> None:
        try:
            self.known.append(text())
        except _Unsupported:
            return

    def equal_indices(self, first: Access, second: Access) -> list[str]:
        """Constraints that both accesses have equal indices, as far as isl can express them."""
        if first.indices is None or second.indices is None:
            return []
        found = []
        for pair in zip(first.indices, second.indices):
            left, right = (rewrite(index, without_check) for index in pair)
            try:
                a = self._expr(left, self._loops(first, "a"), self.names["a"])
                b = self._expr(right, self._loops(second, "b"), self.names["b"])
            except _Unsupported:
                continue
            found.append(f"{a} = {b}")
        return found

    def _loops(self, access: Access, mark: str) -> dict[str, str]:
        return {at.variable: self.names[mark][at.number] for at in access.instance.loops}

    def _expr(self, expr: Expr, loops: Mapping[str, str], axes: Mapping[Any, str]) -> str:
        if isinstance(expr, SizeTerm):
            return f"({self._size(expr.size, loops)})"
        if isinstance(expr, Literal) and isinstance(expr.value, int):
            return str(int(expr.value))
        if isinstance(expr, Index) and expr.name in axes:
            return axes[expr.name]
        if isinstance(expr, Apply):
            if expr.function in ("add", "sub"):
                left, right = (self._expr(a, loops, axes) for a in expr.arguments)
                return f"({left} {'+' if expr.function == 'add' else '-'} {right})"
            if expr.function == "mul":
                return self._product(expr, loops, axes)
            if expr.function in ("floordiv", "mod"):
                left = self._expr(expr.arguments[0], loops, axes)
                return self._division_text(expr.function, left, expr.arguments[1])
        raise _Unsupported

    def _product(self, expr: Apply, loops: Mapping[str, str], axes: Mapping[Any, str]) -> str:
        for number, other in (expr.arguments, expr.arguments[::-1]):
            if isinstance(number, SizeTerm) and number.size.constant is not None:
                return f"({number.size.constant}*{self._expr(other, loops, axes)})"
        raise _Unsupported

    def _division_text(self, function: str, left: str, right: Expr) -> str:
        by = right.size.constant if isinstance(right, SizeTerm) else None
        if by is None or by <= 0:
            raise _Unsupported
        return f"floor(({left})/{by})" if function == "floordiv" else f"(({left}) mod {by})"

    def _size(self, size: Size, loops: Mapping[str, str]) -> str:
        parts: list[str] = []
        for monomial, coefficient in size.monomials:
            if not monomial:
                parts.append(str(coefficient))
            elif len(monomial) == 1:
                parts.append(f"{coefficient}*{self._atom(monomial[0], loops)}")
            else:
                product = Size({monomial: 1})
                if product.symbols & loops.keys():
                    raise _Unsupported
                parts.append(f"{coefficient}*{self._parameter(str(product), product)}")
        return f"({' + '.join(parts) or '0'})"

    def _atom(self, atom: Factor, loops: Mapping[str, str]) -> str:
        if not isinstance(atom, Atom):
            return loops[atom] if atom in loops else self._parameter(atom, Size.symbol(atom))
        if atom.function in ("floordiv", "mod"):
            left = self._size(atom.arguments[0], loops)
            return self._division_text(atom.function, left, SizeTerm(atom.arguments[1]))
        whole = Size.of_atom(atom)
        if whole.symbols & loops.keys():
            raise _Unsupported
        return self._parameter(str(whole), whole)

    def _parameter(self, text: str, size: Size) -> str:
        if text not in self.parameters:
            name = self.parameters[text] = f"p{len(self.parameters)}"
            where = self.box.interval(size)
            if where.lo is not None:
                self.known.append(f"{name} >= {where.lo}")
            if where.hi is not None:
                self.known.append(f"{name} <= {where.hi}")
        return self.parameters[text]

    def empty(self, wanted: list[str]) -> bool:
        """Whether no point satisfies the known and the wanted constraints."""
        space = f"[{', '.join(self.parameters.values())}] -> {{ [{', '.join(self.variables)}]"
        text = f"{space} : {' and '.join([*self.known, *wanted]) or '0 = 0'} }}"
        isl = _isl()
        return bool(isl.Set.read_from_str(isl.DEFAULT_CONTEXT, text).is_empty())
