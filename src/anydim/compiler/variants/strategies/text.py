"""Text -> strategy: calls of kinds with names, numbers, texts, lists and strategies.

    adaptive    exact(limit=8)    buckets(seq=[16, 32], batch=8)

The syntax is Python's, but nothing is executed; a kind receives the values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.text import quote_list, suggestion
from anydim.compiler.variants.strategies.strategy import Strategy

_MAX_LENGTH = 1 << 16  # characters
Kinds = Mapping[str, Callable[..., Strategy]]


def parse_strategy(text: str, kinds: Kinds) -> Strategy:
    """Parse a strategy such as `adaptive` or `exact(limit=8)`."""
    try:
        tree = ast.parse(text.strip()[:_MAX_LENGTH] or "''", mode="eval").body
        made = _Reader(text, kinds).value(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _unreadable(text, text) from None
    if not isinstance(made, Strategy):
        raise _unknown(text.strip(), kinds)
    return made


class _Reader:
    """Evaluates the syntax nodes of one text."""

    def __init__(self, text: str, kinds: Kinds) -> None:
        self._text, self._kinds = text, kinds

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str)):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return tuple(map(self.value, node.elts))
        if isinstance(node, ast.Dict):
            names = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            if None not in names:
                return {str(name): self.value(each) for name, each in zip(names, node.values)}
        if isinstance(node, ast.Name):
            return self._make_strategy(node.id, (), {})
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            given = {each.arg: self.value(each.value) for each in node.keywords}
            if None not in given and len(given) == len(node.keywords):
                named = {str(name): value for name, value in given.items()}
                return self._make_strategy(node.func.id, tuple(map(self.value, node.args)), named)
        raise _unreadable(self._text, ast.get_source_segment(self._text.strip(), node) or "")

    def _make_strategy(
        self, name: str, values: tuple[Any, ...], given: Mapping[str, Any]
    ) -> Strategy:
        """Call a kind, after checking the names of its options."""
        kind = self._kinds.get(name)
        if kind is None:
            raise _unknown(name, self._kinds)
        known = signature(kind).parameters.values()
        named = [each.name for each in known if each.kind is not Parameter.VAR_KEYWORD]
        for option in given if len(named) == len(known) else ():
            if option not in named:
                hint = (
                    f"its options are {quote_list(sorted(named))}" if named else "it has no options"
                )
                raise OptionError(f"strategy '{name}' has no option '{option}'", hint)
        try:
            signature(kind).bind(*values, **given)
        except TypeError as error:
            raise OptionError(f"strategy '{name}': {error}") from None
        return kind(*values, **given)


def _unknown(name: str, kinds: Kinds) -> OptionError:
    hint = suggestion(name, kinds) or f"the strategies are {quote_list(kinds)}"
    return OptionError(f"there is no strategy '{name[:40]}'", hint)


def _unreadable(text: str, rest: str) -> OptionError:
    return OptionError(
        f"strategy '{text[:80]}': '{rest.strip()[:40]}' cannot be read",
        "write options as exact(limit=8) or buckets(seq=[16, 32])",
    )
