"""Serialises records to JSON and back: frozen dataclasses of a closed set.

    {"sizes": ["batch*seq", ...], "signatures": [{...}], "record": {"signature": 0, ...}}

Fields are keyed by name; fields with their default value are omitted. Sizes and signatures, which
occur many times, are stored in tables and referred to by number, so that each is parsed once.
Values read have the types that the dataclasses declare; anything else is an ArtefactError that
names the field. Counts, lengths, depth and numbers are bounded.
"""

from __future__ import annotations

import json
import math
import sys
import types
from collections.abc import Callable, Mapping
from functools import cache
from inspect import get_annotations
from typing import Any, TypeVar, Union, get_args, get_origin

from anydim.base.dtypes import DTYPES, DType
from anydim.base.errors import ArtefactError, InternalError, OptionError, UserError
from anydim.base.records import fields_of, is_record
from anydim.runtime.signature import Signature
from anydim.sizes import Size, parse
from anydim.sizes.printing import LONGEST_TEXT

Record = TypeVar("Record")
_LONGEST_TEXT = 1 << 26  # bytes of a record's text
_LARGEST_NUMBER = 1 << 63
_MOST_ITEMS = 1 << 20  # of a sequence or mapping


# ---- writing -------------------------------------------------------------------------------------


def print_record(record: Any) -> bytes:
    """Serialise a record; equal records give equal texts."""
    writer = _Writer()
    body = writer.plain(record)
    whole = {"sizes": writer.sizes, "signatures": writer.signatures, "record": body}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=True).encode()


class _Writer:
    """Converts values to JSON, with tables of values that occur many times."""

    def __init__(self) -> None:
        self.sizes: list[str] = []
        self.signatures: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def plain(self, value: Any) -> Any:
        """A value as JSON. Members of unions are tagged with their class."""
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value.hex()
        if isinstance(value, Size):
            return self._number(value, self.sizes, _size_text)
        if isinstance(value, Signature):
            return self._number(value, self.signatures, self._fields)
        if isinstance(value, DType):
            return value.name
        if isinstance(value, (tuple, list)):
            return [self.plain(item) for item in value]
        if isinstance(value, (set, frozenset)):
            return sorted(self.plain(item) for item in value)
        if isinstance(value, Mapping):
            return {name: self.plain(item) for name, item in value.items()}
        if is_record(type(value)):
            return self._fields(value)
        raise InternalError(f"a record holds a {type(value).__name__}, which has no text")

    def _number(self, value: Any, table: list[Any], write: Callable[[Any], Any]) -> int:
        """The index of a value in a table."""
        if value not in self._numbers:
            written = write(value)
            self._numbers[value] = len(table)
            table.append(written)
        return self._numbers[value]

    def _fields(self, value: Any) -> dict[str, Any]:
        name = type(value).__name__
        fields: dict[str, Any] = {"is": name} if name in _TAGGED else {}
        for field in fields_of(type(value)):
            given = getattr(value, field.name)
            if not (field.has_default and given == field.made_default()):
                fields[field.name] = self.plain(given)
        return fields


def _size_text(size: Size) -> str:
    text = str(size)
    if len(text) > LONGEST_TEXT:
        raise OptionError(
            f"a size of the program has more than {LONGEST_TEXT} characters and cannot be saved",
            "give the dims bounds, or fix some of them",
        )
    return text


# members of unions are tagged
_TAGGED = frozenset((
    "SegmentStep", "FindStep", "PartStep", "BranchStep", "CallStep", "LoopStep", "CopyStep",
    "EngineStep", "ReleaseStep", "Listed", "RaggedPort", "StructurePort", "Panels",
    "BytesPanels", "NarrowPanels",
))  # fmt: skip


# ---- reading -------------------------------------------------------------------------------------


def parse_record(kind: type[Record], text: bytes) -> Record:
    """Parse a record from text; raises ArtefactError if it is invalid."""
    whole = parse_json(text)
    if not isinstance(whole, dict) or set(whole) != {"sizes", "signatures", "record"}:
        raise ArtefactError("the records are not what this version of anydim writes")
    texts, signatures = whole["sizes"], whole["signatures"]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ArtefactError("the sizes of the records are no texts")
    if not isinstance(signatures, list):
        raise ArtefactError("the signatures of the records are no list")
    reader = _Reader(texts, signatures)
    try:
        record: Record = _read_any(kind)(whole["record"], reader)
    except (ArtefactError, RecursionError) as error:
        raise ArtefactError(f"the records are inconsistent: {error}") from None
    except UserError as error:  # an invalid dim or box
        raise ArtefactError(f"the records are inconsistent: {error.problem}") from None
    return record


def parse_json(text: bytes) -> Any:
    """Parse JSON of a bounded length; raises ArtefactError if it is invalid."""
    if len(text) > _LONGEST_TEXT:
        raise ArtefactError(f"a text of {len(text)} bytes is too long to read")
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_refuse)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"a text cannot be read: {error}") from None


def _refuse(text: str) -> Any:
    raise ValueError(f"'{text}' is no number that a record has")


class _Reader:
    """The sizes and signatures of a text, each parsed on first use."""

    def __init__(self, sizes: list[str], signatures: list[Any]) -> None:
        self.texts = {"size": sizes, "signature": signatures}
        self.known: dict[tuple[str, int], Any] = {}

    def size(self, number: Any) -> Size:
        """The size with a number."""
        found: Size = self._read_numbered("size", number, parse)
        return found

    def signature(self, number: Any) -> Signature:
        """The signature with a number."""
        read = _record(Signature)
        found: Signature = self._read_numbered("signature", number, lambda value: read(value, self))
        return found

    def _read_numbered(self, what: str, number: Any, read: Callable[[Any], Any]) -> Any:
        texts = self.texts[what]
        if type(number) is not int or not 0 <= number < len(texts):
            raise _wrong(f"the number of a {what}", number)
        if (what, number) not in self.known:
            self.known[what, number] = read(texts[number])
        return self.known[what, number]


Read = Callable[[Any, _Reader], Any]


def _wrong(expected: str, value: Any) -> ArtefactError:
    text = repr(value)
    shown = text if len(text) < 60 else f"{text[:57]}..."
    return ArtefactError(f"expected {expected}, got {shown}")


def _read_any(kind: Any) -> Read:
    return _read(kind)


@cache
def _read(hint: Any) -> Read:
    """The reader for values of a type."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(_read(arguments[0]), tuple)
    if origin is tuple:
        return _tuple_reader([_read(argument) for argument in arguments])
    if origin is frozenset:
        return _sequence(_read(arguments[0]), frozenset)
    if origin is not None and issubclass(origin, Mapping) if isinstance(origin, type) else False:
        return _mapping(_read(arguments[1]))
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if isinstance(hint, type) and is_record(hint):
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


def _float(value: Any, reader: _Reader) -> float:
    try:
        number = float.fromhex(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if not math.isfinite(number):
        raise _wrong("a number in hexadecimal", value)
    return number


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
    float: _float,
    DType: _dtype,
    Size: lambda value, reader: reader.size(value),
    Signature: lambda value, reader: reader.signature(value),
}


def _sequence(item: Read, make: Callable[[Any], Any]) -> Read:
    def read(value: Any, reader: _Reader) -> Any:
        if type(value) is not list or len(value) > _MOST_ITEMS:
            raise _wrong("a list", value)
        return make([item(each, reader) for each in value])

    return read


def _tuple_reader(items: list[Read]) -> Read:
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
    """A reader for a union: None, a text, or a dataclass; several dataclasses are tagged."""
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


@cache
def _record(kind: Any) -> Read:
    fields = {field.name: field for field in fields_of(kind)}
    named = kind.__name__
    readers: dict[str, Read] = {}  # of the fields that have occurred

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
                if name not in readers:
                    readers[name] = _reader_of(kind, name)
                given[name] = readers[name](item, reader)
            except ArtefactError as error:
                raise ArtefactError(f"{named}.{name}: {error.problem}") from None
        for name, field in fields.items():
            if name not in given and not field.has_default:
                raise ArtefactError(f"{named} lacks '{name}'")
        return kind(**given)

    return read


def _reader_of(kind: type, name: str) -> Read:
    """The reader for a field, by the type that its class declares."""
    owner = next(base for base in kind.__mro__ if name in get_annotations(base))
    return _of_text(owner.__module__, owner.__annotations__[name])


@cache
def _of_text(module: str, text: str) -> Read:
    """The reader for a type annotation of a module."""
    if text in _WRITTEN:
        return _WRITTEN[text]
    return _read(eval(text, vars(sys.modules[module])))  # in half of get_type_hints's time


_WRITTEN: dict[str, Read] = {"bool": _boolean, "int": _integer, "str": _string}
