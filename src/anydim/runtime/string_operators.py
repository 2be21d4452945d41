"""Operators on strings and maps in numpy, which run on the host for learned models.

A row maps the given attributes of a node to a function of its inputs; tensors among them are
arrays. `HostSteps` runs a part of a model whose operators all have rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy

from anydim.base.errors import AnydimError, InputError
from anydim.base.records import dataclass
from anydim.base.user_values import short_repr

Attributes = Mapping[str, Any]
LEARNED = "ai.onnx.ml"
CONTRIBUTED = "com.microsoft"

_CASTS = {"TO_FLOAT": numpy.float32, "TO_INT64": numpy.int64, "TO_STRING": object}
_MARKS = ("\x02", "\x03")  # around the tokens of a text (Tokenizer)


def label_encoder(given: Attributes) -> Callable[[Any], numpy.ndarray]:
    """Map each key to its value, and all other items to a default."""
    tables: dict[bool, tuple[dict[Any, Any], numpy.dtype, Any]] = {}

    def encode(x: Any) -> numpy.ndarray:
        items = numpy.asarray(x)
        texts = items.dtype.kind in "OU"
        if texts not in tables:
            tables[texts] = _table(given, texts)
        table, dtype, other = tables[texts]
        keys = items.reshape(-1).tolist()
        found = [table.get(item, other) for item in (keys if texts else map(_key, keys))]
        return fill_vector(found, dtype).reshape(items.shape)

    return encode


def _table(given: Attributes, texts: bool) -> tuple[dict[Any, Any], numpy.dtype, Any]:
    """The value of each key, the type of values, and the default."""
    known, values, other = _pairs(given, texts)
    table: dict[Any, Any] = {}
    for key, value in zip(known, values.tolist()):
        table.setdefault(_key(key), value)  # the first of equal keys counts
    return table, values.dtype, other


def _pairs(given: Attributes, texts: bool) -> tuple[list[Any], numpy.ndarray, Any]:
    """Keys, values, and the default for other items."""
    names: Sequence[str] = given.get("classes_strings") or ()
    if names:  # before opset 2: names and their indices
        indices = numpy.arange(len(names))
        if texts:
            return list(names), indices, given.get("default_int64", -1)
        return indices.tolist(), fill_vector(names), given.get("default_string", "_Unused")
    if "cats_strings" in given:
        strings, numbers = given["cats_strings"], numpy.array(given["cats_int64s"], numpy.int64)
        if texts:
            return list(strings), numbers, given.get("default_int64", -1)
        return numbers.tolist(), fill_vector(strings), given.get("default_string", "_Unused")
    values = _items_of(given, "values")
    if "default_tensor" in given:
        other = given["default_tensor"].reshape(-1)[0]
    elif values.dtype == object:
        other = given.get("default_string", "_Unused")
    elif values.dtype.kind == "f":
        other = given.get("default_float", -0.0)
    else:
        other = given.get("default_int64", -1)
    return _items_of(given, "keys").tolist(), values, other


def _items_of(given: Attributes, what: str) -> numpy.ndarray:
    if f"{what}_tensor" in given:
        return numpy.asarray(given[f"{what}_tensor"]).reshape(-1)
    kinds = (("strings", object), ("int64s", numpy.int64), ("floats", numpy.float32))
    for kind, dtype in kinds:
        found = given.get(f"{what}_{kind}")
        if found:
            return fill_vector(found, numpy.dtype(dtype))
    return numpy.zeros(0, numpy.int64)


def fill_vector(items: Sequence[Any], dtype: numpy.dtype | type = object) -> numpy.ndarray:
    """A vector of any items; numpy would unpack strings and lists."""
    made = numpy.empty(len(items), dtype)
    made[:] = items
    return made


def _key(item: Any) -> Any:
    """The table key of an item: all NaN are equal."""
    return None if item != item else item


def zip_map(given: Attributes, x: numpy.ndarray) -> list[dict[Any, float]]:
    """A map from labels to values for each row."""
    labels = given.get("classlabels_strings") or given.get("classlabels_int64s") or ()
    rows = numpy.atleast_2d(x)
    if rows.shape[1] != len(labels):
        raise ValueError(f"{rows.shape[1]} columns for {len(labels)} labels")
    return [dict(zip(labels, row)) for row in rows.tolist()]


def dict_vectorizer(given: Attributes, x: Any) -> numpy.ndarray:
    """A row for each map: its values at the indices of their keys in the vocabulary."""
    words = given.get("string_vocabulary") or given.get("int64_vocabulary") or ()
    columns = {word: column for column, word in enumerate(words)}
    maps = x if isinstance(x, list) else [x]
    held = [value for own in maps for value in own.values()]
    texts, whole = (any(isinstance(v, kind) for v in held) for kind in (str, int))
    dtype = object if texts else numpy.int64 if whole else numpy.float32
    made = numpy.full((len(maps), len(words)), "" if texts else 0, dtype)
    for row, own in zip(made, maps):
        for key, value in own.items():
            if key in columns:
                row[columns[key]] = value
    return made


def cast_map(given: Attributes, x: Mapping[int, Any]) -> numpy.ndarray:
    """The values of a map by ascending keys, or each at index key with zeros between."""
    dtype = _CASTS[given.get("cast_to", "TO_FLOAT")]
    if given.get("map_form", "DENSE") == "DENSE":
        return fill_vector([_cast(x[key], dtype) for key in sorted(x)], dtype)[None]
    made = numpy.full(max(0, given.get("max_map", 1)), "" if dtype is object else 0, dtype)
    for key, value in x.items():
        if 0 <= key < len(made):
            made[key] = _cast(value, dtype)
    return made[None]


def _cast(value: Any, dtype: Any) -> Any:
    if dtype is object:
        return str(value)
    return int(float(value)) if dtype is numpy.int64 else float(value)


def string_normalizer(given: Attributes, x: numpy.ndarray) -> numpy.ndarray:
    """Change the case of texts and remove stop words; one empty text if none remains."""
    change, exact = given.get("case_change_action", "NONE"), given.get("is_case_sensitive", 0)
    cases: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper}
    stop = {word if exact else word.lower() for word in given.get("stopwords") or ()}
    texts = numpy.asarray(x)
    if stop:
        kept = [t for t in texts.reshape(-1).tolist() if (t if exact else t.lower()) not in stop]
        texts = fill_vector(kept or [""])
        texts = texts[None] if numpy.ndim(x) == 2 else texts
    changed = cases.get(change, str)
    return fill_vector([changed(t) for t in texts.reshape(-1).tolist()]).reshape(texts.shape)


def tokenizer(given: Attributes, x: numpy.ndarray) -> numpy.ndarray:
    """Split each text into tokens along a new last axis, padded with `pad_value`."""
    pattern, separators = given.get("tokenexp"), given.get("separators") or ()
    min_length = given.get("mincharnum", 1)

    def tokens(text: str) -> list[str]:
        if pattern:
            found = [match.group() for match in re.finditer(pattern, text)]
        elif separators and separators[0]:
            found = re.split("|".join(f"(?:{one})" for one in separators), text)
        else:
            found = list(text)
        return [token for token in found if token and len(token) >= min_length]

    rows = [tokens(text) for text in numpy.asarray(x).reshape(-1).tolist()]
    if given.get("mark"):
        rows = [[_MARKS[0], *row, _MARKS[1]] for row in rows]
    width = max(map(len, rows), default=0)
    made = numpy.full((len(rows), width), given.get("pad_value", ""), object)
    for target, row in zip(made, rows):
        target[: len(row)] = row
    return made.reshape(*numpy.shape(x), width)


def flatten(given: Attributes, x: numpy.ndarray) -> numpy.ndarray:
    """Flatten to a matrix; the evaluator's own fails for strings with no rows."""
    axis = given.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


def gather(given: Attributes, x: numpy.ndarray, at: numpy.ndarray) -> numpy.ndarray:
    """Take slices of x at indices along an axis; negative indices count from the end."""
    return numpy.take(x, at, given.get("axis", 0))


def _each_time(row: Callable[..., Any]) -> Callable[[Attributes], Callable[..., Any]]:
    """A row whose attributes need no preparation."""
    return lambda given: partial(row, given)


HOST: dict[tuple[str, str], Callable[[Attributes], Callable[..., Any]]] = {
    (LEARNED, "CastMap"): _each_time(cast_map),
    (LEARNED, "CategoryMapper"): label_encoder,
    (LEARNED, "DictVectorizer"): _each_time(dict_vectorizer),
    (LEARNED, "LabelEncoder"): label_encoder,
    (LEARNED, "ZipMap"): _each_time(zip_map),
    (CONTRIBUTED, "Tokenizer"): _each_time(tokenizer),
    ("", "Flatten"): _each_time(flatten),
    ("", "Gather"): _each_time(gather),
    ("", "StringNormalizer"): _each_time(string_normalizer),
}
"""(domain, operator) -> a function of the node's attributes that returns one of its inputs."""


# ---- steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostNode:
    """An operator with a row, its operands and result by name, and its attributes."""

    domain: str
    operator: str
    inputs: tuple[str, ...]
    output: str
    attributes: Attributes


class HostSteps:
    """A part of a model on the host: values in, values out, by name."""

    def __init__(
        self, name: str, inputs: Sequence[str], outputs: Sequence[str], nodes: Sequence[HostNode],
        constants: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.name, self.inputs, self.outputs = name, tuple(inputs), tuple(outputs)
        self.nodes, self.constants = tuple(nodes), dict(constants)
        self._steps = [
            (HOST[node.domain, node.operator](node.attributes), node.inputs, node.output)
            for node in nodes
        ]

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Run the part; InputError for values that its operators reject."""
        known = {name: values[name] for name in self.inputs} | self.constants
        try:
            for work, read, made in self._steps:
                known[made] = work(*(known[name] for name in read))
        except AnydimError:
            raise
        except Exception as error:  # values of any type were given
            raise refusal(self.name, (node.operator for node in self.nodes), error) from None
        return {name: known[name] for name in self.outputs}


def refusal(name: str, operators: Iterable[str], error: Exception) -> InputError:
    """The error for values that operators on strings reject."""
    return InputError(f"{name}: {', '.join(dict.fromkeys(operators))} on strings: {error}")


# ---- inputs --------------------------------------------------------------------------------------


def as_strings(name: str, value: Any) -> numpy.ndarray:
    """Convert to an array of Python strings; InputError for anything else."""
    try:
        array = numpy.asarray(value)
    except ValueError:  # lists of different lengths
        raise InputError(f"input '{name}' holds no array", "give an array of strings") from None
    if array.dtype.kind == "S":
        array = numpy.char.decode(array, "utf-8")
    items = array.reshape(-1).tolist()
    if array.dtype.kind not in "UOT" or not all(isinstance(item, str) for item in items):
        raise InputError(f"input '{name}' holds {array.dtype}, expected strings")
    return array.astype(object)


def as_maps(name: str, value: Any) -> Any:
    """Check for a dict, or a list of dicts; InputError for anything else."""
    if isinstance(value, dict) or (
        isinstance(value, list) and all(isinstance(item, dict) for item in value)
    ):
        return value
    raise InputError(f"input '{name}' is {type(value).__name__}, expected a dict or a list of them")


def as_lists(name: str, value: Any) -> list[numpy.ndarray]:
    """Convert to a list of arrays of strings; InputError for anything else."""
    if not isinstance(value, (list, tuple)):
        raise InputError(f"input '{name}' is {short_repr(value)}, expected a list of arrays")
    return [as_strings(name, each) for each in value]


READERS: dict[str, Callable[[str, Any], Any]] = {
    "strings": as_strings,
    "maps": as_maps,
    "lists": as_lists,
    "": lambda name, value: value,
}
"""The converter of an input's name and value, by the kind of the input."""
