"""`dataclass` of the standard library, of which a record has what it needs when it needs it.

The package has some 440 records, of which a process uses a part, and seldom all methods: having
Python compile six functions for each took a fifth of the time that loading the compiler takes, and
looking at the fields of each a tenth of a second start. Fields are looked at when something asks
for them, methods are written when they are first called.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

_STANDARD = dataclasses.dataclass

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, init: bool = True
    ) -> Any:
        """`dataclasses.dataclass`; nothing but these options."""
        if cls is None:
            return lambda made: dataclass(made, frozen=frozen, eq=eq, init=init)
        own = frozenset(cls.__dict__)
        hashed = cls.__dict__.get("__hash__", cls.__hash__ if not eq else None)
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # else the standard one makes it of a signature: 0.3 ms
        if init:
            for name in _FOUND:
                setattr(cls, name, _Found(cls, name))
        else:  # the first instance does not ask for the fields
            _STANDARD(cls, init=False, repr=False, eq=False)
        if frozen:
            cls.__setattr__, cls.__delattr__ = _refuse, _refuse
        writers = {"__repr__": _repr_text}
        if init:
            writers["__init__"] = _init_text
            cls.__signature__ = _Signature(cls)
        if eq:
            writers["__eq__"] = _eq_text
            if "__hash__" not in own or (hashed is None and "__eq__" in own):
                writers["__hash__"] = _hash_text if frozen else None
        for name, text in writers.items():
            if text is None:
                cls.__hash__ = None
            elif name not in own or name == "__init__" or name == "__hash__":
                setattr(cls, name, _at_first(cls, name, text))
        return cls


_FINDING = threading.RLock()  # a record looks at those that it extends
_FOUND = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")


class _Found:
    """What the standard library finds out of the fields of a record, when that is asked for."""

    def __init__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, instance: object, cls: type) -> Any:
        with _FINDING:
            if isinstance(self.owner.__dict__[_FOUND[0]], _Found):  # no other thread was faster
                _STANDARD(self.owner, init=False, repr=False, eq=False)
                named = dataclasses.fields(self.owner)
                names = tuple(field.name for field in named if field.init and not field.kw_only)
                self.owner.__match_args__ = names  # the standard library finds ours, and leaves it
        return getattr(cls, self.name)


def _refuse(self: Any, name: str, *value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


class _Signature:
    """What `help` and `inspect` say of the call of a record, before its first instance too."""

    def __init__(self, owner: type) -> None:
        self.owner = owner

    def __get__(self, instance: object, cls: type) -> Any:
        if cls is not self.owner:
            raise AttributeError("__signature__")
        parameters = [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY if field.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
                default=_default(field),
                annotation=field.type,
            )
            for field in dataclasses.fields(cls)
            if field.init
        ]
        return Signature(sorted(parameters, key=lambda each: each.kind))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    given = field.default_factory is dataclasses.MISSING
    return Parameter.empty if given else field.default_factory


def _at_first(cls: type, name: str, text: Callable[[type, dict[str, Any]], str]) -> Any:
    """A method that puts the one of that text in its place, and calls it."""

    def method(self: Any, *given: Any, **named: Any) -> Any:
        names: dict[str, Any] = {"put": object.__setattr__}
        exec(text(cls, names), names)
        made = names[name]
        made.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, made)
        return made(self, *given, **named)

    return method


def _init_text(cls: type, names: dict[str, Any]) -> str:
    fields = dataclasses.fields(cls)
    frozen = cls.__setattr__ is _refuse
    plain, keywords, lines = ["self"], list[str](), list[str]()
    for field in fields:
        value, default = field.name, ""
        if field.default is not dataclasses.MISSING:
            names[f"default_{field.name}"] = field.default
            default = f"default_{field.name}"
        elif field.default_factory is not dataclasses.MISSING:
            names[f"make_{field.name}"], names["missing"] = field.default_factory, object
            default = "missing"
            value = f"make_{field.name}() if {field.name} is missing else {field.name}"
        if field.init:
            place = keywords if field.kw_only else plain
            place.append(f"{field.name}={default}" if default else field.name)
        else:
            value = f"make_{field.name}()" if default == "missing" else default
        if value:
            name = field.name
            lines.append(f"put(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    given = ", ".join([*plain, *(["*", *keywords] if keywords else [])])
    return f"def __init__({given}):\n  " + "\n  ".join(lines or ["pass"])


def _repr_text(cls: type, names: dict[str, Any]) -> str:
    shown = (field.name for field in dataclasses.fields(cls) if field.repr)
    parts = ", ".join(f"{name}={{self.{name}!r}}" for name in shown)
    return f'def __repr__(self):\n  return f"{{type(self).__qualname__}}({parts})"'


def _eq_text(cls: type, names: dict[str, Any]) -> str:
    own = _tuple("self", cls)
    return (
        "def __eq__(self, other):\n  if other.__class__ is not self.__class__:\n"
        f"    return NotImplemented\n  return {own} == {_tuple('other', cls)}"
    )


def _hash_text(cls: type, names: dict[str, Any]) -> str:
    return f"def __hash__(self):\n  return hash({_tuple('self', cls)})"


def _tuple(of: str, cls: type) -> str:
    compared = (field.name for field in dataclasses.fields(cls) if field.compare)
    return "(" + "".join(f"{of}.{name}, " for name in compared) + ")"
