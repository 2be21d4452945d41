"""A lazy `dataclass`: inspects fields and generates methods on first use.

The package has some 440 records, of which a process uses a part, and seldom all methods: compiling
six functions for each took a fifth of the time to load the compiler, and inspecting all fields a
tenth of the start of a second process. Fields are inspected on demand, methods are generated at
their first call.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable
from inspect import Parameter, Signature, get_annotations
from typing import TYPE_CHECKING, Any

from anydim.base.fork_locks import fork_lock

_STANDARD = dataclasses.dataclass

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, init: bool = True
    ) -> Any:
        """`dataclasses.dataclass` with these options only."""
        if cls is None:
            return lambda made: dataclass(made, frozen=frozen, eq=eq, init=init)
        own = frozenset(cls.__dict__)
        hashed = cls.__dict__.get("__hash__", cls.__hash__ if not eq else None)
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # else built from a signature: 0.3 ms
        found = _Inspection(cls)
        for name in _Inspection.names:
            setattr(cls, name, _OnDemand(found, name))
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


# ---- fields ------------------------------------------------------------------------------------

_MISSING = dataclasses.MISSING
SHOWN_IF_SET = {"shown if set": True}
"""Metadata of a field that `repr` shows only if it differs from its default.

An identity that hashes the text of a record includes such a field; records with the default keep
the identity that they had before the field was added.
"""
_FIELDS = "__record_fields__"  # of a class; fields of its bases come first
_FINDING = fork_lock(sys.modules[__name__], "_FINDING", threading.RLock)  # inspects bases


class RecordField:
    """A field of a record, as its methods need it."""

    __slots__ = ("compare", "default", "factory", "init", "kw_only", "name", "repr", "shown_if_set")

    def __init__(self, name: str, given: Any, kw_only: bool = False) -> None:
        """`given` is the class attribute: a field, a default, or `_MISSING`."""
        self.name, self.default = name, given
        self.factory: Any = _MISSING
        self.init = self.repr = self.compare = True
        self.kw_only, self.shown_if_set = kw_only, False
        if isinstance(given, dataclasses.Field):
            self.default, self.factory = given.default, given.default_factory
            self.init, self.repr, self.compare = given.init, given.repr, given.compare
            self.kw_only = kw_only if given.kw_only is _MISSING else given.kw_only
            self.shown_if_set = SHOWN_IF_SET.items() <= given.metadata.items()

    @property
    def has_default(self) -> bool:
        """Whether the field is optional."""
        return self.default is not _MISSING or self.factory is not _MISSING

    def made_default(self) -> Any:
        """The default value of a new instance."""
        return self.default if self.factory is _MISSING else self.factory()


def fields_of(cls: type) -> tuple[RecordField, ...]:
    """The fields of a record in order; inherited if the class itself is no record."""
    found: tuple[RecordField, ...] = getattr(cls, _FIELDS)
    return found


def is_record(cls: type) -> bool:
    """Whether a class is a record, or extends one."""
    return hasattr(cls, _FIELDS)


class _Inspection:
    """The fields of a record, and their inspection by the standard library on demand."""

    names = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")

    def __init__(self, owner: type) -> None:
        self.owner = owner
        self._given: dict[str, Any] | None = {}  # class attributes by name; None: already inspected
        known: dict[str, RecordField] = {}
        for base in owner.__mro__[-1:0:-1]:
            known |= {field.name: field for field in base.__dict__.get(_FIELDS, ())}
        keywords = False
        for name, kind in get_annotations(owner).items():
            if kind == "KW_ONLY":  # the following fields are keywords
                keywords = True
            elif not kind.startswith("ClassVar"):
                given = owner.__dict__.get(name, _MISSING)
                known[name] = RecordField(name, given, keywords)
                if isinstance(given, dataclasses.Field):
                    self._given[name] = given
                    self._take(name, given)
        setattr(owner, _FIELDS, tuple(known.values()))

    def inspect(self) -> None:
        """Let the standard library inspect the class, once."""
        with _FINDING:
            if self._given is None:
                return
            for name, given in self._given.items():
                setattr(self.owner, name, given)
            _STANDARD(self.owner, init=False, repr=False, eq=False)
            names = (one.name for one in fields_of(self.owner) if one.init and not one.kw_only)
            setattr(self.owner, self.names[-1], tuple(names))  # replaces our descriptor
            self._given = None

    def _take(self, name: str, given: dataclasses.Field[Any]) -> None:
        """Set the class attribute to the default, or remove it."""
        if given.default is _MISSING:
            delattr(self.owner, name)
        else:
            setattr(self.owner, name, given.default)


class _OnDemand:
    """A class attribute that the standard library computes at its first access."""

    def __init__(self, found: _Inspection, name: str) -> None:
        self._found, self._name = found, name

    def __get__(self, instance: object, cls: type) -> Any:
        self._found.inspect()
        return getattr(cls, self._name)


# ---- methods -----------------------------------------------------------------------------------

_STATE = "__state__"  # a variable of `__init__`, no name of a field
_FEW_INSTANCES = 6  # instances initialised without generated code in the time to compile `__init__`


def _refuse(self: Any, name: str, *value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


class _Signature:
    """The signature of a record for `help` and `inspect`, computed on demand."""

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
                annotation=cls.__dataclass_fields__[field.name].type,  # type: ignore[attr-defined]
            )
            for field in fields_of(cls)
            if field.init
        ]
        return Signature(sorted(parameters, key=lambda each: each.kind))


def _default(field: RecordField) -> Any:
    if field.default is not _MISSING:
        return field.default
    return Parameter.empty if field.factory is _MISSING else field.factory


def _at_first(cls: type, name: str, text: Callable[[type, dict[str, Any]], str]) -> Any:
    """A method that generates its replacement at the first call, and calls it.

    The first few instances of a record are initialised without it: most records have few.
    """
    left = _FEW_INSTANCES if name == "__init__" else 0

    def method(self: Any, *given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0 and _is_made(cls, self, given, named):
            return None
        names: dict[str, Any] = {}
        exec(text(cls, names), names)
        made = names[name]
        made.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, made)
        return made(self, *given, **named)

    return method


def _is_made(cls: Any, self: Any, given: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Initialise an instance like `__init__`; False if the arguments do not bind."""
    fields, values = fields_of(cls), dict(named)
    names = [field.name for field in fields if field.init and not field.kw_only]
    for name, value in zip(names, given):
        if name in values:
            return False
        values[name] = value
    if len(given) > len(names):
        return False
    made = {}
    for field in fields:
        if field.init and field.name in values:
            made[field.name] = values.pop(field.name)
        elif field.has_default:
            made[field.name] = field.made_default()
        elif field.init:
            return False
    if values:
        return False
    put = object.__setattr__ if cls.__setattr__ is _refuse else setattr
    for name, value in made.items():
        put(self, name, value)
    if hasattr(cls, "__post_init__"):
        self.__post_init__()
    return True


def _init_text(cls: type, names: dict[str, Any]) -> str:
    frozen = cls.__setattr__ is _refuse
    plain, keywords, lines = ["self"], list[str](), list[str]()
    for field in fields_of(cls):
        value, default = field.name, ""
        if field.default is not _MISSING:
            names[f"default_{field.name}"] = field.default
            default = f"default_{field.name}"
        elif field.factory is not _MISSING:
            names[f"make_{field.name}"], names["missing"] = field.factory, object
            default = "missing"
            value = f"make_{field.name}() if {field.name} is missing else {field.name}"
        if field.init:
            section = keywords if field.kw_only else plain
            section.append(f"{field.name}={default}" if default else field.name)
        else:
            value = f"make_{field.name}()" if default == "missing" else default
        if value:
            name = field.name
            lines.append(f"{_STATE}[{name!r}] = {value}" if frozen else f"self.{name} = {value}")
    if frozen and lines:
        lines.insert(0, f"{_STATE} = self.__dict__")  # half the time of `object.__setattr__`
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    given = ", ".join([*plain, *(["*", *keywords] if keywords else [])])
    return f"def __init__({given}):\n  " + "\n  ".join(lines or ["pass"])


def _repr_text(cls: type, names: dict[str, Any]) -> str:
    shown = (field.name for field in fields_of(cls) if field.repr)
    parts = ", ".join(f"{name}={{self.{name}!r}}" for name in shown)
    for field in fields_of(cls):
        if field.shown_if_set:
            names[f"default_{field.name}"] = field.default
            value = f"self.{field.name}"
            text = f"', {field.name}=' + repr({value})"
            parts += f"{{{text} if {value} != default_{field.name} else ''}}"
    return f'def __repr__(self):\n  return f"{{type(self).__qualname__}}({parts})"'


def _eq_text(cls: type, names: dict[str, Any]) -> str:
    """Compares as tuples of the fields do, equal objects first, without making the tuples."""
    lines = ["if other.__class__ is not self.__class__: return NotImplemented"]
    for field in fields_of(cls):
        if field.compare:
            lines.append(f"one, two = self.{field.name}, other.{field.name}")
            lines.append("if one is not two and not one == two: return False")
    return "def __eq__(self, other):\n  " + "\n  ".join([*lines, "return True"])


def _hash_text(cls: type, names: dict[str, Any]) -> str:
    compared = "".join(f"self.{field.name}, " for field in fields_of(cls) if field.compare)
    return f"def __hash__(self):\n  return hash(({compared}))"
