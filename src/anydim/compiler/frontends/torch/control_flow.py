"""Higher-order operators of torch: branches, loops and scans, whose graphs are modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anydim.base.dtypes import boolean
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.compiler.frontends.torch.rows import OVERLOADS


def build_higher_order(importing: Any, node: Any) -> Any:
    """The results of a higher-order operator."""
    row = _ROWS.get(str(node.target))
    if row is None:
        raise Refused("not supported")
    return row(importing, node)


def _cond(importing: Any, node: Any) -> Any:
    """torch.cond: both branches take the same operands."""
    condition, then, otherwise, operands = (importing.convert(each) for each in node.args)
    g = importing.g
    if isinstance(condition, bool):
        return importing.inline(g, then if condition else otherwise, operands)
    flag = g.reshape(g.as_type(condition, boolean), shape=())

    def branch(module: Any) -> Callable[[Any], Sequence[Value]]:
        return lambda inner: importing.inline(inner, module, operands)

    made = g.branch(flag, branch(then), branch(otherwise))
    return list(made) if isinstance(made, tuple) else [made]


def _while(importing: Any, node: Any) -> Any:
    """torch.while_loop: the condition is computed before the loop and after each iteration."""
    condition, body, carried, others = (importing.convert(each) for each in node.args)
    g = importing.g
    if not all(isinstance(each, Value) for each in carried):
        raise Refused("numbers that a loop carries")

    def holds(inner: Any, values: Sequence[Value]) -> Value:
        (made,) = importing.inline(inner, condition, [*values, *others])
        return inner.reshape(made, shape=())

    def once(inner: Any, _: Any, *values: Value) -> list[Value]:
        made = importing.inline(inner, body, [*values, *others])
        inner.proceed(holds(inner, made))
        return made

    made = g.loop(once, *carried, condition=holds(g, carried))
    return list(made) if isinstance(made, tuple) else [made]


def _with_effects(importing: Any, node: Any) -> Any:
    """An ordered overload (with_effects): returns the token and its results."""
    token, overload, *arguments = node.args
    row = OVERLOADS.get(str(overload))
    if row is None:
        raise Refused(f"{overload} is not supported")
    made = row(importing.g, *(importing.convert(each) for each in arguments), **node.kwargs)
    return [importing.convert(token), *([] if made is None else [made])]


_ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "cond": _cond,
    "while_loop": _while,
    "with_effects": _with_effects,
}
