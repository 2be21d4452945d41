"""Records as text and back: frozen dataclasses of a closed set, in JSON.

    {"sizes": ["batch*seq", ...], "record": {"signature": {...}, ...}}

Fields go by name, those that have their default are left out. A size is the number of its text, so
that each is parsed once. What comes back is of the types that the dataclasses declare, or it is an
ArtefactError that names the field; counts, lengths, depth and numbers are bounded.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from anydim.base.dtypes import DTYPES, DType
from anydim.base.errors import ArtefactError, InternalError, UserError
from anydim.sizes import Size, parse

Record = TypeVar("Record")
_LONGEST_TEXT = 1 << 26  # bytes of a record's text
_LARGEST_NUMBER = 1 << 63
_MOST_ITEMS = 1 << 20  # of a sequence or mapping


# ---- writing -------------------------------------------------------------------------------------


def print_record(record: Any) -> bytes:
    """A record as text; equal records give equal texts."""
    sizes: dict[Size, int] = {}
    body = _plain(record, sizes)
    whole = {"sizes": [str(size) for size in sizes], "record": body}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=True).encode()


def _plain(value: Any, sizes: dict[Size, int]) -> Any:
    """A value as JSON has it. What kind of dataclass it is, is written where that is no matter of
    course: by its reader's table of unions."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Size):
        return sizes.setdefault(value, len(sizes))
    if isinstance(value, DType):
        return value.name
    if isinstance(value, (tuple, list)):
        return [_plain(item, sizes) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(item, sizes) for item in value)
    if isinstance(value, Mapping):
        return {name: _plain(item, sizes) for name, item in value.items()}
    if dataclasses.is_dataclass(value):
        fields = {"is": type(value).__name__} if type(value).__name__ in _TAGGED else {}
        for field in dataclasses.fields(value):
            given = getattr(value, field.name)
            if not (_has_default(field) and given == _default(field)):
                fields[field.name] = _plain(given, sizes)
        return fields
    raise InternalError(f"a record holds a {type(value).__name__}, which has no text")


# the members of unions say what they are
_TAGGED = frozenset((
    "SegmentStep", "FindStep", "BranchStep", "CallStep", "LoopStep", "ReleaseStep",
    "StraightStart", "RegionStart",
))  # fmt: skip


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


# ---- reading -------------------------------------------------------------------------------------


def parse_record(kind: type[Record], text: bytes) -> Record:
    """The record that a text says; raises ArtefactError where it says none."""
    whole = parse_json(text)
    if not isinstance(whole, dict) or set(whole) != {"sizes", "record"}:
        raise ArtefactError("the records are not what this version of anydim writes")
    texts = whole["sizes"]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ArtefactError("the sizes of the records are no texts")
    reader = _Reader(texts)
    try:
        record: Record = _read_any(kind)(whole["record"], reader)
    except (ArtefactError, RecursionError) as error:
        raise ArtefactError(f"the records do not hold together: {error}") from None
    except UserError as error:  # a dim or box that cannot be
        raise ArtefactError(f"the records do not hold together: {error.problem}") from None
    return record


def parse_json(text: bytes) -> Any:
    """JSON of a bounded length; raises ArtefactError where it is none."""
    if len(text) > _LONGEST_TEXT:
        raise ArtefactError(f"a text of {len(text)} bytes is too long to read")
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_refuse)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"a text cannot be read: {error}") from None


def _refuse(text: str) -> Any:
    raise ValueError(f"'{text}' is no number that a record has")


class _Reader:
    """The sizes of a text, each parsed when it is asked for."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.sizes: dict[int, Size] = {}

    def size(self, number: Any) -> Size:
        known = self.sizes.get(number) if type(number) is int else None
        if known is not None:
            return known
        if type(number) is not int or not 0 <= number < len(self.texts):
            raise _wrong("the number of a size", number)
        size = self.sizes[number] = parse(self.texts[number])
        return size


Read = Callable[[Any, _Reader], Any]


def _wrong(expected: str, came: Any) -> ArtefactError:
    text = repr(came)
    shown = text if len(text) < 60 else f"{text[:57]}..."
    return ArtefactError(f"expected {expected}, got {shown}")


def _read_any(kind: Any) -> Read:
    return _read(kind)


@cache
def _read(hint: Any) -> Read:
    """What reads a value of a type."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(_read(arguments[0]), tuple)
    if origin is tuple:
        return _fixed([_read(argument) for argument in arguments])
    if origin is frozenset:
        return _sequence(_read(arguments[0]), frozenset)
    if origin is not None and issubclass(origin, Mapping) if isinstance(origin, type) else False:
        return _mapping(_read(arguments[1]))
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if dataclasses.is_dataclass(hint):
        return _record(hint)
    raise InternalError(f"records have no values of type {hint}")


def _boolean(value: Any, reader: _Reader) -> bool:
    if type(value) is not bool:
        raise _wrong("true or false", value)
    return value


def _integer(value: Any, reader: _Reader) -> int:
    if type(value) is not int or not -_LARGEST_NUMBER <= value < _LARGEST_NUMBER:
        raise _wrong("an integer of 64 bits", value)
    return value


def _string(value: Any, reader: _Reader) -> str:
    if type(value) is not str:
        raise _wrong("a text", value)
    return value


def _dtype(value: Any, reader: _Reader) -> DType:
    if type(value) is not str or value not in DTYPES:
        raise _wrong("an element type", value)
    return DTYPES[value]


_SIMPLE: dict[Any, Read] = {
    bool: _boolean,
    int: _integer,
    str: _string,
    DType: _dtype,
    Size: lambda value, reader: reader.size(value),
}


def _sequence(item: Read, make: Callable[[Any], Any]) -> Read:
    def read(value: Any, reader: _Reader) -> Any:
        if type(value) is not list or len(value) > _MOST_ITEMS:
            raise _wrong("a list", value)
        return make([item(each, reader) for each in value])

    return read


def _fixed(items: list[Read]) -> Read:
    def read(value: Any, reader: _Reader) -> Any:
        if type(value) is not list or len(value) != len(items):
            raise _wrong(f"a list of {len(items)}", value)
        return tuple(item(each, reader) for item, each in zip(items, value))

    return read


def _mapping(item: Read) -> Read:
    def read(value: Any, reader: _Reader) -> Any:
        if type(value) is not dict or len(value) > _MOST_ITEMS:
            raise _wrong("an object", value)
        return {name: item(each, reader) for name, each in value.items()}

    return read


def _union(arguments: tuple[Any, ...]) -> Read:
    """One of several types: None, a text, or a dataclass; several dataclasses say which."""
    texts = str in arguments
    optional = type(None) in arguments
    others = [a for a in arguments if a not in (type(None), str)]
    tagged = {kind.__name__: kind for kind in others if getattr(kind, "__name__", "") in _TAGGED}

    def read(value: Any, reader: _Reader) -> Any:
        if value is None and optional:
            return None
        if type(value) is str and texts:
            return value
        if tagged:
            tag = value.get("is") if type(value) is dict else None
            if type(tag) is not str or tag not in tagged:
                raise _wrong("one of " + ", ".join(tagged), value)
            return _read(tagged[tag])(value, reader)
        if len(others) != 1:
            raise _wrong("a text", value)
        return _read(others[0])(value, reader)

    return read


def _record(kind: Any) -> Read:
    hints = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    named = kind.__name__

    @cache
    def readers() -> dict[str, Read]:
        return {name: _read(hints[name]) for name in fields}

    def read(value: Any, reader: _Reader) -> Any:
        if type(value) is not dict:
            raise _wrong(f"a {named}", value)
        given = {}
        for name, item in value.items():
            if name == "is" and item == named:
                continue
            if name not in fields:
                raise ArtefactError(f"{named} has no '{name}'")
            try:
                given[name] = readers()[name](item, reader)
            except ArtefactError as error:
                raise ArtefactError(f"{named}.{name}: {error.problem}") from None
        for name, field in fields.items():
            if name not in given and not _has_default(field):
                raise ArtefactError(f"{named} lacks '{name}'")
        return kind(**given)

    return read
