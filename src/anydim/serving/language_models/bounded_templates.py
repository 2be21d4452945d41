"""An environment of Jinja whose templates end and stay small: they come with models.

Loops, macros, filters and calls count against a limit of processor time; texts and lists that
operators, filters and calls make have a most length, which is checked before the operators that
could exceed it by far.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import thread_time
from typing import Any

from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from anydim.base.errors import InputError

SECONDS = 2.0  # of processor time; usual templates take some thousandths
LONGEST = 1 << 23  # characters of a text, items of a list
_LARGEST = 1 << 20  # an integer that calls and filters take
_TICK, _JOIN = "anydim_tick", "anydim_join"
_WIDTHS = re.compile(r"\d+")
_SLOW = ("lipsum", "urlize", "wordwrap", "xmlattr", "pprint", "random")  # no template needs them
_MOST_MADE = 1 << 28  # characters and items that one use of a template makes


class _Budget:
    """What a use of a template may still take: its end in processor time, characters and items."""

    def __init__(self) -> None:
        self.end, self.left = thread_time() + SECONDS, _MOST_MADE


_budget: ContextVar[_Budget | None] = ContextVar("anydim_template_budget", default=None)


class _Limits(NodeTransformer):
    """Adds a check of time to loops and macros, and one of lengths to `~`."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.test is not None:
            node.test = nodes.Filter(node.test, _TICK, [], [], None, None)
        return self._ticking(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._ticking(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._ticking(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Filter(nodes.List(node.nodes), _JOIN, [], [], None, None)

    def _ticking(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        tick = nodes.Filter(nodes.Const(0), _TICK, [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(tick))
        found: nodes.Node = node
        return found


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox with limits of time and size, which raise InputError."""

    intercepted_binops = frozenset(("*", "+", "**", "%"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True,
                         extensions=["jinja2.ext.loopcontrols"])  # fmt: skip
        for table in (self.globals, self.filters):
            for name in _SLOW:
                table.pop(name, None)
        for known in (self.filters, self.tests):
            functions: dict[str, Any] = dict(known)
            known.update({name: limit_calls(function) for name, function in functions.items()})
        self.filters[_TICK], self.filters[_JOIN] = _tick, _join

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        found: nodes.Template = _Limits().visit(super()._parse(source, name, filename))
        return found

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """The text of parts: of a template, or of a block."""
        return _join(parts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Calculate within the limits."""
        if operator == "**" and _size(left) + _size(right) > 1 << 10:
            raise _too_large()
        if operator == "*":
            _check(_size(left) * _size(right))
        if operator == "%" and isinstance(left, str):
            _check_widths(left, right)
        return _check_result(super().call_binop(context, operator, left, right))

    def call(self, context: Any, function: Any, *given: Any, **named: Any) -> Any:
        """Call a function or a method within the limits."""
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps `format`
        owner = getattr(method, "__self__", None)
        _check_call(owner, method, (*given, *named.values()))
        return _check_result(super().call(context, function, *given, **named))


@contextmanager
def limits() -> Iterator[None]:
    """Limit what a template takes within the block."""
    token = _budget.set(_Budget())
    try:
        yield
    finally:
        _budget.reset(token)


def _tick(value: Any = None) -> Any:
    """The value; raises InputError when the time is over."""
    budget = _budget.get()
    if budget is not None and thread_time() > budget.end:
        raise InputError(f"it runs longer than {SECONDS:g} s", "use another chat template")
    return value


def limit_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test with limits; it keeps what Jinja notes at functions."""

    def call(*given: Any, **named: Any) -> Any:
        _check_call(None, function, (*given, *named.values()))
        return _check_result(function(*given, **named))

    vars(call).update(getattr(function, "__dict__", {}))
    call.__name__ = getattr(function, "__name__", "filter")
    return call


def _check_call(owner: Any, function: Any, given: tuple[Any, ...]) -> None:
    _tick()
    if any(isinstance(each, int) and abs(each) > _LARGEST for each in given):
        raise _too_large()
    if isinstance(owner, str):
        name = getattr(function, "__name__", "")
        if name in ("format", "format_map"):
            _check_widths(owner, given)
        elif name == "replace" and len(given) > 1:
            _check((len(owner) + 1) * max(_size(given[1]), 1))
        elif name == "join":
            _check(sum(map(_size, given[0])) if isinstance(given[0], list) else 0)
            _check(len(owner) * _size(given[0]))
    elif getattr(function, "__name__", "") in ("do_replace", "do_join", "do_format"):
        texts = [each for each in given if isinstance(each, (str, list, tuple))]
        product = 1
        for text in texts:
            product *= max(_size(text), 1)
        inner = sum(_size(item) for text in texts if not isinstance(text, str) for item in text)
        _check(product if function.__name__ == "do_replace" else inner)
        if function.__name__ == "do_format" and texts:
            _check_widths(str(texts[0]), given[1:])


def _check_widths(form: str, given: Any) -> None:
    """The widths of fields that a text declares, which become spaces."""
    numbers = [int(text[:9]) for text in _WIDTHS.findall(form)]
    several = given if isinstance(given, tuple) else (given,)
    numbers += [abs(each) for each in several if isinstance(each, int)] if len(form) > 99 else []
    _check(sum(numbers) + len(form) * sum(_size(each) for each in several if type(each) is str))


def _join(parts: Iterable[Any]) -> str:
    texts, size = list[str](), 0
    for part in parts:
        text = str(part)
        texts.append(text)
        size += len(text)
        _check(size)
    return "".join(texts)


def _size(value: Any) -> int:
    """The length of a text or list, the amount of a number; else 1."""
    if isinstance(value, (str, bytes, list, tuple, dict)):
        return len(value)
    return min(abs(value), LONGEST + 1) if isinstance(value, int) else 1


def _check_result(made: Any) -> Any:
    _tick()
    if isinstance(made, (str, bytes, list, tuple, dict)):
        _check(len(made))
        budget = _budget.get()
        if budget is not None:
            budget.left -= len(made)
            _check(LONGEST + 1 if budget.left < 0 else 0)
    elif isinstance(made, int) and not isinstance(made, bool) and abs(made) >> 256:
        raise _too_large()
    return made


def _check(size: int) -> None:
    if size > LONGEST:
        raise _too_large()


def _too_large() -> InputError:
    return InputError(f"it makes a text, list or number above {LONGEST} elements",
                      "use another chat template")  # fmt: skip
