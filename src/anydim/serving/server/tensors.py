"""Tensors of the open inference protocol v2: as JSON, as bytes beside it, and as messages.

Nothing that a client sends is used as a size before it is compared with the bytes that came.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy

from anydim.base.dtypes import DType, bfloat16
from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.serving.server.answers import NUMBERS, Parts, elements, json_elements, json_of
from anydim.serving.server.json_bodies import Numbers, kind_of, short_json, wrong_nesting

MOST_AXES = 32
MOST_SIZE = 1 << 31  # of an axis
MOST_ELEMENTS = 1 << 59  # by sizes besides 0: numpy counts their bytes
MOST_STRINGS = 1 << 16  # of a tensor
MOST_ID = 1 << 10  # characters
_LENGTH = 4  # bytes before each string
DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16",
    "float32": "FP32", "float64": "FP64", "bfloat16": "BF16", "object": "BYTES",
}  # fmt: skip
"""The protocol's name of each dtype of numpy."""
_NUMPY = {name: dtype for dtype, name in DATATYPES.items()}
_ELEMENTS: dict[str, tuple[str, frozenset[type]]] = {
    "b": ("true or false", frozenset({bool})), "u": ("integers", frozenset({int})),
    "i": ("integers", frozenset({int})), "f": ("numbers", frozenset({int, float})),
    "O": ("strings", frozenset({str})),
}  # fmt: skip
"""The types of elements in JSON, by kind of dtype."""


@dataclass(frozen=True)
class InferRequest:
    """A request as a client sent it.

    `outputs` are the names of the requested results, None for all; `binary` those it wants as
    bytes, `binary_default` whether others come so.
    """

    inputs: dict[str, numpy.ndarray]
    id: str
    outputs: tuple[str, ...] | None
    binary: Mapping[str, bool]
    binary_default: bool
    parameters: Mapping[str, Any]

    def is_binary(self, name: str) -> bool:
        """Whether a result is sent as bytes."""
        return self.binary.get(name, self.binary_default)


@dataclass(frozen=True)
class Row:
    """An input as a client described it: `size` are its bytes behind the JSON, None if its elements
    are `data` in the JSON. `where` names it in errors."""

    name: str
    where: str
    dtype: numpy.dtype
    shape: tuple[int, ...]
    size: int | None
    data: Any


@lru_cache(64)
def datatype(dtype: DType | numpy.dtype) -> str:
    """The protocol's name of an element type."""
    found = getattr(dtype, "numpy", dtype)
    if found.kind in "OUT":
        return DATATYPES["object"]
    return DATATYPES.get(str(found.name), str(found.name).upper())


def parse_request(head: Mapping[str, Any], rest: memoryview) -> InferRequest:
    """Parse a request: its JSON head and the binary tensors behind it. Raises InputError."""
    return request_of(head, arrays_of(rows_of(head), rest))


def rows_of(head: Mapping[str, Any]) -> tuple[Row, ...]:
    """The inputs that a head describes; raises InputError."""
    rows = tuple(map(_read_row, _list(head, "inputs")))
    names = set[str]()
    for row in rows:
        if row.name in names:
            raise InputError(f"{row.where} is given twice")
        names.add(row.name)
    return rows


def arrays_of(rows: Sequence[Row], rest: memoryview) -> dict[str, numpy.ndarray]:
    """The arrays of inputs, of their JSON or of the bytes behind it; raises InputError."""
    found: dict[str, numpy.ndarray] = {}
    for row in rows:
        size = row.size
        if size is None:
            found[row.name] = _of_json(row.where, row.data, row.dtype, row.shape)
            continue
        if size > len(rest):
            raise _wrong_size(row.where, size, f"{len(rest)} bytes are left")
        found[row.name] = of_bytes(row.where, rest[:size], row.dtype, row.shape)
        rest = rest[size:]
    if len(rest):
        raise InputError(f"{len(rest)} bytes stand behind the last input")
    return found


def request_of(head: Mapping[str, Any], inputs: dict[str, numpy.ndarray]) -> InferRequest:
    """A request with these inputs; its head specifies the rest. Raises InputError."""
    names: list[str] = []
    binary: dict[str, bool] = {}
    for row in _list(head, "outputs") if head.get("outputs") else ():
        name = row.get("name") if isinstance(row, dict) else None
        if not isinstance(name, str):
            raise InputError("an output has no name")
        names.append(name)
        parameters = _parameters(row, f"output '{name}'")
        if "binary_data" in parameters:
            binary[name] = parameters["binary_data"] is True
    parameters = _parameters(head, "the request")
    return InferRequest(
        inputs, id_of(head.get("id")), tuple(dict.fromkeys(names)) or None, binary,
        parameters.get("binary_data_output") is True, parameters,
    )  # fmt: skip


def _wrong_size(where: str, size: Any, why: str) -> InputError:
    return InputError(f"{where}: binary_data_size is {short_json(size)}, {why}")


def id_of(given: Any) -> str:
    """Return the id of a request; raises InputError if it is no string or number, or too long."""
    if given is None:
        return ""
    if type(given) not in (str, int, float):
        raise InputError(f"'id' is {kind_of(given)}, expected a string")
    found = str(given)
    if len(found) > MOST_ID:
        raise InputError(f"'id' has {len(found)} characters, at most {MOST_ID} are taken")
    return found


def _list(head: Mapping[str, Any], key: str) -> Sequence[Any]:
    found = head.get(key)
    if not isinstance(found, list):
        raise InputError(f"'{key}' is {kind_of(found)}, expected a list of objects")
    return found


def _parameters(row: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    found = row.get("parameters") or {}
    if not isinstance(found, dict):
        raise InputError(f"{where}: 'parameters' is {kind_of(found)}, expected an object")
    check_parameters(found, where)
    return found


def check_parameters(names: Iterable[str], where: str) -> None:
    """Raise InputError for a parameter of an extension that the server does not have, if ignoring
    it would give other results, or results elsewhere, than the client expects."""
    for name in names:
        if name in _REFUSED:
            raise InputError(f"{where}: the parameter '{name}' is not supported", _REFUSED[name])


_REFUSED = {
    "shared_memory_region": "send and read the tensor as binary data",
    "classification": "request the tensor, and sort it",
}
"""What to do instead, by parameter."""


def _read_row(row: Any) -> Row:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        raise InputError("an input has no name")
    where = f"input '{row['name']}'"
    dtype, shape = dtype_of(where, row.get("datatype")), shape_of(where, row.get("shape"))
    size = _parameters(row, where).get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        raise _wrong_size(where, size, "expected a number of bytes")
    return Row(row["name"], where, dtype, shape, size, row.get("data") if size is None else None)


def dtype_of(where: str, name: Any) -> numpy.dtype:
    """The dtype of a datatype; raises InputError for others."""
    known = _NUMPY.get(name) if isinstance(name, str) else None
    if known is None:
        raise InputError(f"{where}: datatype is {short_json(name)}", f"known: {', '.join(_NUMPY)}")
    return bfloat16.numpy if known == "bfloat16" else numpy.dtype(known)


def shape_of(where: str, given: Any) -> tuple[int, ...]:
    """A shape; raises InputError for what is none, or above limits."""
    if not isinstance(given, list) or len(given) > MOST_AXES:
        raise InputError(f"{where}: shape is no list of at most {MOST_AXES} sizes")
    for size in given:
        if type(size) is not int or not 0 <= size < MOST_SIZE:
            raise InputError(f"{where}: {short_json(size)} is no size",
                             f"sizes are 0 to {MOST_SIZE - 1}")  # fmt: skip
    if math.prod(max(size, 1) for size in given) > MOST_ELEMENTS:
        raise InputError(f"{where}: {given} is no shape",
                         f"sizes besides 0 multiply to {MOST_ELEMENTS} at most")  # fmt: skip
    return tuple(given)


def of_bytes(where: str, data: Any, dtype: numpy.dtype, shape: tuple[int, ...]) -> numpy.ndarray:
    """An array of its bytes, little-endian; raises InputError if their number is wrong."""
    if dtype.kind == "O":
        return _strings(where, data, shape)
    wanted = math.prod(shape) * dtype.itemsize
    if len(data) != wanted:
        raise InputError(
            f"{where}: {list(shape)} of {datatype(dtype)} is {wanted} bytes, got {len(data)}"
        )
    array = numpy.frombuffer(data, dtype).reshape(shape)
    if dtype.kind == "b" and array.size and int(array.view(numpy.uint8).max()) > 1:
        raise InputError(f"{where}: a BOOL is 0 or 1")
    return array if array.flags.aligned else array.copy()


def _strings(where: str, data: Any, shape: tuple[int, ...]) -> numpy.ndarray:
    """An array of strings: of each its length in 4 bytes, little-endian, and its bytes."""
    count, found, rest = _count_of_strings(where, shape), list[str](), memoryview(data)
    for number in range(count):
        size = int.from_bytes(rest[:_LENGTH], "little")
        text = rest[_LENGTH : _LENGTH + size]
        if len(rest) < _LENGTH or len(text) < size:
            raise InputError(f"{where}: string {number} of {count} is cut off")
        found.append(string_of(where, number, bytes(text)))
        rest = rest[_LENGTH + size :]
    if len(rest):
        raise InputError(f"{where}: {len(rest)} bytes stand behind the last string")
    return strings_of(where, found, shape)


def string_of(where: str, number: int, data: bytes) -> str:
    """A string of its bytes; raises InputError for bytes that are no UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{where}: string {number} is no UTF-8") from None


def _count_of_strings(where: str, shape: tuple[int, ...]) -> int:
    count = math.prod(shape)
    if count > MOST_STRINGS:
        raise InputError(f"{where}: {count} strings, at most {MOST_STRINGS} are taken",
                         "split the request")  # fmt: skip
    return count


def strings_of(where: str, given: Sequence[str], shape: tuple[int, ...]) -> numpy.ndarray:
    """An array of strings; raises InputError for another number of them, or too many."""
    count = _count_of_strings(where, shape)
    if len(given) != count:
        raise InputError(f"{where}: {list(shape)} has {count} elements, got {len(given)}")
    made = numpy.empty(count, object)
    made[:] = given
    return made.reshape(shape)


def _flat(where: str, given: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """The elements of lists that are nested as a shape, or of a list that does not begin with one.
    Raises InputError for others, or another number of them."""
    count = math.prod(shape)
    if given and isinstance(given[0], list):
        level: list[Any] = [given]
        for size in shape:
            if set(map(type, level)) - {list} or set(map(len, level)) - {size}:
                raise wrong_nesting(where, shape)
            level = list(itertools.chain.from_iterable(level))
        given = level
    if len(given) != count:
        raise InputError(f"{where}: {list(shape)} has {count} elements, got {len(given)}")
    return given


def raw(array: numpy.ndarray) -> Any:
    """The bytes of an array, as the protocol has them."""
    if array.dtype.kind not in "OUT":
        part = numpy.ascontiguousarray(array).reshape(-1)
        return part.view(numpy.uint8).data if part.size else b""  # bfloat16 has no buffer
    texts = [str(each).encode("utf-8") for each in array.reshape(-1).tolist()]
    return b"".join(part for text in texts
                    for part in (len(text).to_bytes(_LENGTH, "little"), text))  # fmt: skip


def _of_json(where: str, data: Any, dtype: numpy.dtype, shape: tuple[int, ...]) -> numpy.ndarray:
    if isinstance(data, Numbers) and dtype.kind != "O":
        return data.array(where, dtype, shape, partial(_elements, where, dtype))
    expected, _ = _types(dtype)
    if not isinstance(data, list):
        raise InputError(f"{where}: 'data' is {kind_of(data)}, expected a list of {expected}")
    flat = _flat(where, data, shape)
    if dtype.kind == "O":
        _check_types(where, dtype, flat)
        return strings_of(where, flat, shape)
    return _elements(where, dtype, flat).reshape(shape)


def _types(dtype: numpy.dtype) -> tuple[str, frozenset[type]]:
    """The elements of a dtype in JSON: their name, and their types."""
    return _ELEMENTS["f" if dtype.name == "bfloat16" else dtype.kind]


def _check_types(where: str, dtype: numpy.dtype, data: Sequence[Any]) -> None:
    """Raise InputError for elements of other types than those of a dtype."""
    expected, types = _types(dtype)
    if set(map(type, data)) <= types:
        return
    wrong = next(each for each in data if type(each) not in types)
    raise InputError(f"{where}: its data has {kind_of(wrong)}, {datatype(dtype)} takes {expected}")


def _elements(where: str, dtype: numpy.dtype, data: Sequence[Any]) -> numpy.ndarray:
    """An array of elements of JSON; raises InputError for other types, and for numbers outside of
    the dtype. The types are compared first: of lists and strings, numpy makes what the longest one
    takes for each element."""
    _check_types(where, dtype, data)
    if dtype.kind == "b":
        return numpy.array(data, dtype)
    if dtype.kind in "iu":
        limits = numpy.iinfo(dtype)
        if data and not limits.min <= min(data) <= max(data) <= limits.max:
            raise InputError(f"{where}: a number does not fit {datatype(dtype)}")
        return numpy.array(data, dtype)
    try:
        found = numpy.array(data, numpy.float64)
    except OverflowError:
        raise InputError(f"{where}: a number does not fit {datatype(dtype)}") from None
    with numpy.errstate(over="ignore"):
        return found.astype(dtype)


def answer_body(
    model: str, version: str, asked: InferRequest, results: Mapping[str, Any]
) -> tuple[bytes | Parts, int | None]:
    """Return the body of a response and the length of its JSON head (None: all of it is JSON).

    A long head is produced twice, once for its length.
    """
    about = {"model_name": model, "model_version": version}
    if asked.id:
        about["id"] = asked.id
    elif all(map(asked.is_binary, results)):
        return _in_bytes(model, version, results)
    rows: list[tuple[dict[str, Any], Any]] = []
    parts = []
    for name, array in results.items():
        row: dict[str, Any] = {
            "name": name, "datatype": datatype(array.dtype), "shape": list(array.shape)
        }  # fmt: skip
        is_binary = asked.is_binary(name)
        rows.append((row, None if is_binary else array))
        if is_binary:
            part = raw(array)
            row["parameters"] = {"binary_data_size": len(part)}
            parts.append(part)
    if not is_long(asked, results):
        text = json_of({**about, "outputs": [_with_data(*pair) for pair in rows]})
        if not parts:
            return text, None
        return Parts(len(text) + sum(map(len, parts)), lambda: (text, *parts)), len(text)
    head = partial(_head, about, rows)
    if not parts:
        return Parts(None, head), None
    size = sum(map(len, head()))
    whole = size + sum(map(len, parts))
    return Parts(whole, lambda: itertools.chain(head(), parts)), size


def _in_bytes(model: str, version: str, results: Mapping[str, Any]) -> tuple[Parts, int]:
    """The body of an answer with results as bytes, and the length of its head."""
    parts = [raw(array) for array in results.values()]
    rows = tuple([(name, array.dtype, array.shape, len(part))
                  for (name, array), part in zip(results.items(), parts)])  # fmt: skip
    head = _head_of_bytes(model, version, rows)
    return Parts(len(head) + sum(map(len, parts)), lambda: (head, *parts)), len(head)


@lru_cache(1024)
def _head_of_bytes(
    model: str, version: str, rows: tuple[tuple[str, numpy.dtype, tuple[int, ...], int], ...]
) -> bytes:
    """Return the JSON head of a response with binary results; cached, as it repeats."""
    outputs = [
        {"name": name, "datatype": datatype(dtype), "shape": list(shape),
         "parameters": {"binary_data_size": size}}
        for name, dtype, shape, size in rows
    ]  # fmt: skip
    return json_of({"model_name": model, "model_version": version, "outputs": outputs})


def is_long(asked: InferRequest, results: Mapping[str, Any]) -> bool:
    """Whether more than `NUMBERS` elements are written as JSON."""
    sizes = (array.size for name, array in results.items() if not asked.is_binary(name))
    return sum(sizes) > NUMBERS


def _with_data(row: dict[str, Any], array: numpy.ndarray | None) -> dict[str, Any]:
    if array is not None:
        row["data"] = json_elements(array).tolist()
    return row


def _head(
    about: Mapping[str, Any], rows: Sequence[tuple[Mapping[str, Any], Any]]
) -> Iterator[bytes]:
    """The JSON of an answer, in pieces; arrays of the rows are written as data."""
    yield json_of(about)[:-1] + b',"outputs":['
    for number, (row, array) in enumerate(rows):
        text = (b"," if number else b"") + json_of(row)
        if array is None:
            yield text
            continue
        yield text[:-1] + b',"data":['
        yield from elements(array)
        yield b"]}"
    yield b"]}"
