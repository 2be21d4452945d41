"""Parsing of JSON requests. Long JSON is parsed in pieces, since `json.loads` holds the
interpreter lock for its whole duration: a second for 50 MB."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import InputError

LONG = 1 << 17  # bytes of JSON that are not read at once
_PIECE = 1 << 15  # bytes that are
_LEAST = 1 << 12  # bytes of a list that is left for later
_MOST_MARKS = 1 << 19  # strings and structure of long JSON
_MOST_REST = 1 << 20  # bytes of long JSON besides strings and lists that are left for later
_MOST_STRINGS = 1 << 23  # bytes
_WINDOW = 64  # bytes in which a list begins, or ends
_MARK = re.compile(rb'["{}:]')
_QUOTE = re.compile(rb'["\\]')
_SPACE = b" \t\r\n"
_FLAT = bytes.maketrans(b"[]", b"  ")
_OTHERS = bytes(set(range(256)) - set(b"[],"))
_AS_ZEROS = bytes.maketrans(_OTHERS, b"0" * len(_OTHERS))
_SPACES = re.compile(rb"[ \t\r\n]+")
_MOST_SHOWN = 40  # characters of a value in an error

Convert = Callable[[Sequence[Any]], numpy.ndarray]


def parse_object(
    text: bytes | memoryview, lists: Mapping[str, Numbers] | None = None
) -> dict[str, Any]:
    """Parse a JSON object; raises InputError for anything else.

    Strings that are keys of `lists` are replaced by its values.
    """

    def placed(found: dict[str, Any]) -> dict[str, Any]:
        known = lists or {}
        return {key: known.get(each, each) if isinstance(each, str) else each
                for key, each in found.items()}  # fmt: skip

    try:
        found = json.loads(str(text, "utf-8"), object_hook=placed if lists else None)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the request is no JSON: {_reason(error)}") from None
    if not isinstance(found, dict):
        raise InputError(f"the request is {kind_of(found)}, expected an object")
    return found


def _reason(error: Exception) -> str:
    """Return why JSON is invalid, without Python's advice on long integers."""
    return "an integer has too many digits" if "sys.set_int" in str(error) else str(error)


class Numbers:
    """A long JSON list of numbers that is not parsed yet."""

    def __init__(self, text: memoryview) -> None:
        self._text = text

    def array(
        self, where: str, dtype: numpy.dtype, shape: tuple[int, ...], convert: Convert
    ) -> numpy.ndarray:
        """Its elements, each piece converted by `convert`. They are a flat list, or lists that are
        nested as the shape. Raises InputError for others, or another number of them."""
        count, begin = math.prod(shape), 0
        if count > len(self._text):
            raise InputError(f"{where}: {list(shape)} has {count} elements, its data has fewer")
        made, structure = numpy.empty(count, dtype), list[bytes]()
        for piece in self._pieces(where):
            brackets = piece.translate(None, _OTHERS)
            structure.append(brackets)
            if not count and len(brackets) == len(piece.translate(None, _SPACE)):
                continue  # empty lists
            values = convert(_values(where, piece))
            part = made[begin : begin + len(values)]
            part[:] = values[: len(part)]
            begin += len(values)
        if begin != count:
            raise InputError(f"{where}: {list(shape)} has {count} elements, got {begin}")
        found = b"".join(structure)
        structure.clear()
        if not (_has_structure(found, (count,)) or _has_structure(found, shape)):
            raise wrong_nesting(where, shape)
        return made.reshape(shape)

    def _pieces(self, where: str) -> Iterator[bytes]:
        """The text, cut behind commas; spaces where it is cut are one."""
        left = b""  # of the piece before
        for begin in range(0, len(self._text), _PIECE):
            piece = left + bytes(self._text[begin : begin + _PIECE])
            end = piece.rfind(b",") + 1
            left = _SPACES.sub(b" ", piece[end:])
            if len(left) > _PIECE:
                raise InputError(f"{where}: its data has an element of {_PIECE} bytes")
            if end:
                yield piece[:end]
        yield left


def _values(where: str, piece: bytes) -> list[Any]:
    """The elements of a piece of a list."""
    shape = piece.translate(_AS_ZEROS, _SPACE)
    flat = piece.translate(_FLAT).rstrip()
    try:
        if b"0[" in shape or b"]0" in shape:
            raise ValueError("a comma is missing")
        found: list[Any] = json.loads(b"[" + flat.removesuffix(b",") + b"]")
    except ValueError as error:
        raise InputError(f"{where}: its data is no list of numbers: {_reason(error)}") from None
    return found


def _has_structure(found: bytes, shape: tuple[int, ...]) -> bool:
    """Whether brackets and commas are those of lists that are nested as a shape. They are compared
    only if there are as many: of a long shape, an element may have 2 * MOST_AXES."""
    if 0 in shape:
        shape = shape[: shape.index(0) + 1]
    length = 0
    for size in reversed(shape):
        length = 2 + size * length + max(size - 1, 0)
    if length != len(found):
        return False
    made = b""
    for size in reversed(shape):
        made = b"[" + (made + b",") * (size - 1) + made * (size > 0) + b"]"
    return made == found


def parsed_long(text: memoryview) -> dict[str, Any]:
    """As `parsed`, in pieces: long lists of numbers that are values of an object are `Numbers`.

    Raises InputError, also for long JSON that consists of other things.
    """
    kept, lists, name = list[bytes](), dict[str, Numbers](), secrets.token_hex(8)
    begin = 0  # of what is not kept yet
    for start, end in _long_values(text):
        key = f"{name}{len(lists)}"
        kept += [bytes(text[begin:start]), json.dumps(key).encode()]
        lists[key] = Numbers(text[start:end])
        begin = end
    kept.append(bytes(text[begin:]))
    return parse_object(b"".join(kept), lists)


def _long_values(text: memoryview) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of long lists of numbers that are values of an object."""
    marks = strings = rest = begin = 0
    before = 0  # the mark before
    while begin < len(text):
        end = _find(_MARK, text, begin)
        found = _list_in(text, begin, end) if before == ord(":") else None
        if found is None:
            rest += end - begin
        else:
            yield found
        before, begin, marks = text[end] if end < len(text) else 0, end + 1, marks + 1
        if before == ord('"'):
            begin = _end_of_string(text, end)
            strings += begin - end
        if marks > _MOST_MARKS or rest > _MOST_REST or strings > _MOST_STRINGS:
            raise InputError("the JSON is long, and most of it is no list of numbers",
                             "send tensors as binary data, or split the request")  # fmt: skip


def _find(what: re.Pattern[bytes], text: memoryview, begin: int) -> int:
    """Return the position of a pattern, or the length of the text if it is absent."""
    for start in range(begin, len(text), _PIECE):
        found = what.search(text, start, start + _PIECE)
        if found is not None:
            return found.start()
    return len(text)


def _end_of_string(text: memoryview, begin: int) -> int:
    """Return the end of a string literal that starts at a quote."""
    begin += 1
    while (found := _find(_QUOTE, text, begin)) < len(text):
        if text[found] == ord('"'):
            return found + 1
        begin = found + 2
    return len(text)


def _list_in(text: memoryview, begin: int, end: int) -> tuple[int, int] | None:
    """Where a list begins and ends that a part of the text consists of; None if it is short, or
    something else."""
    if end - begin < _LEAST:
        return None
    head, tail = bytes(text[begin : begin + _WINDOW]), bytes(text[end - _WINDOW : end])
    start = begin + len(head) - len(head.lstrip(_SPACE))
    stop = end - _WINDOW + len(tail.rstrip(_SPACE).removesuffix(b",").rstrip(_SPACE))
    return (start, stop) if text[start] == ord("[") and text[stop - 1] == ord("]") else None


_KINDS: dict[type, str] = {
    dict: "an object", list: "a list", Numbers: "a list of numbers", str: "a string",
    bool: "true or false", int: "an integer", float: "a floating-point number", type(None): "null",
}  # fmt: skip


def kind_of(value: Any) -> str:
    """Name the kind of a JSON value, for errors."""
    return _KINDS[type(value)]


def short_json(value: Any) -> str:
    """Return the text of a short JSON value, or the kind of a long one, for errors."""
    text = repr(value) if isinstance(value, (str, int, float)) else kind_of(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def wrong_nesting(where: str, shape: tuple[int, ...]) -> InputError:
    """The error for lists that are neither flat nor nested as a shape."""
    return InputError(f"{where}: its data is no flat list, and not nested as {list(shape)}")
