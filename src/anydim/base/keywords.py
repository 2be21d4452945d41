"""Errors for calls of public functions with wrong arguments, with suggestions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import Parameter, signature
from types import FunctionType
from typing import Any, TypeVar

from anydim.base.errors import ArgumentError
from anydim.base.text import suggestion

_UNKNOWN = "got an unexpected keyword argument "  # CPython's wording

Public = TypeVar("Public", bound=Callable[..., Any])


def public(known: Public) -> Public:
    """Wrap a function, or a class's public methods, to report misspelled keywords.

    The wrapper raises ArgumentError, also a TypeError, if Python cannot bind the arguments.
    """
    if not isinstance(known, type):
        return _wrap(known)
    for name, value in list(vars(known).items()):
        if isinstance(value, FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(known, name, _wrap(value))
    return known


def with_keywords_of(other: Callable[..., Any]) -> Callable[[Public], Public]:
    """Decorate a function that passes `**` on to `other`: `help` shows the keywords of both."""

    def decorate(function: Public) -> Public:
        own = signature(function)
        known = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        more = [
            one.replace(kind=Parameter.KEYWORD_ONLY)
            for name, one in signature(other).parameters.items() if name not in own.parameters
        ]  # fmt: skip
        function.__signature__ = own.replace(parameters=[*known, *more])  # type: ignore[attr-defined]
        return function

    return decorate


def check_keywords(function: Callable[..., Any], named: Iterable[str]) -> None:
    """Raise ArgumentError for a keyword that the function does not take."""
    known = _names(function)
    for name in named:
        if name not in known:
            said = f"{function.__name__}() {_UNKNOWN}'{name}'"
            raise ArgumentError(said, _hint(said, known))


def _wrap(function: Any) -> Any:
    @wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        try:
            return function(*values, **named)
        except TypeError as error:
            at = error.__traceback__
            if at is None or at.tb_next is not None:
                raise  # raised inside the function
            text = str(error)
        made = function.__name__ == "__init__" and values
        name = type(values[0]).__name__ if made else function.__name__
        said = f"{name}() {text.partition('. Did you mean')[0].partition('() ')[2]}"
        raise ArgumentError(said, _hint(said, _names(function)))

    return call


def _names(function: Any) -> list[str]:
    parameters = signature(function).parameters.values()
    named = (one.name for one in parameters if one.kind is not Parameter.VAR_POSITIONAL)
    return [name for name in named if name != "self"]


def _hint(said: str, known: Sequence[str]) -> str:
    """The nearest name to an unknown one, or the list of names."""
    name = said.partition(_UNKNOWN)[2].strip("'")
    return suggestion(name, known) or f"it takes {', '.join(known) or 'nothing'}"
