"""Arrays of forests: the declaration of a structure input, and the checks of its arrays.

The arrays of a forest are the inputs of the program by name: roots, and for each field the values
of all nodes of its constructor. A tensor field without nodes may have no array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Any, NoReturn

import numpy

from anydim.base.dtypes import array_of_numbers
from anydim.base.errors import InputError
from anydim.base.text import axes_text, count_of, quote_list, suggestion
from anydim.base.user_values import short_repr
from anydim.runtime.arrays import shared_array
from anydim.runtime.lists import ConstructorPort, FieldPort, StructurePort
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Size

Arrays = dict[str, numpy.ndarray]  # by the program's names of the inputs of a port
Fields = Mapping[str, Mapping[str, Any]]  # by constructor and field
Fail = Callable[[int, str], NoReturn]  # raises the error for a node


class Reader:
    """Reads the nodes of a constructor; in its tuple, field `i` is item `i + 1`."""

    def __init__(self, constructor: ConstructorPort) -> None:
        fields = [(itemgetter(at), f) for at, f in enumerate(constructor.fields, 1)]
        self.fields = fields
        self.single = [(item, f.type) for item, f in fields if f.type and not f.offsets]
        self.lists = [(item, f.type) for item, f in fields if f.offsets]
        self.length = 1 + len(fields)


class Schema:
    """The declaration of a structure input, with tables for conversions.

    `where` names the input in errors. `specs` are the inputs of the program by name, if known.
    Without them, `untyped` collects the tensor fields that were given as Python numbers.
    """

    def __init__(
        self, port: StructurePort, where: str = "structure",
        specs: Mapping[str, TensorSpec] | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(port, StructurePort):
            raise InputError(
                f"{where}: declared is {short_repr(port)}", 'give declared=model.lists["t"]'
            )
        self.port, self.where, self.specs = port, where, specs or {}
        self.untyped = set[str]()
        self.types = {each.name: {c.name: c for c in each.constructors} for each in port.types}

    @cached_property
    def readers(self) -> dict[str, dict[str, Reader]]:
        """The readers of nodes, by type and constructor."""
        return {
            type: {name: Reader(each) for name, each in known.items()}
            for type, known in self.types.items()
        }

    @cached_property
    def references(self) -> list[tuple[str, ConstructorPort, FieldPort]]:
        """The fields of structures, as `fields`."""
        return [each for each in self.fields() if each[2].type]

    @property
    def has_lists(self) -> bool:
        """Whether a field has any number of structures."""
        return any(field.offsets for _, _, field in self.references)

    def fields(self) -> Iterator[tuple[str, ConstructorPort, FieldPort]]:
        """All fields, with the type and the constructor of each."""
        for type, known in self.types.items():
            for constructor in known.values():
                for field in constructor.fields:
                    yield type, constructor, field

    def numbering(
        self, type: str, counts: Callable[[ConstructorPort], int]
    ) -> dict[str, tuple[int, int]]:
        """The first node and the number of nodes of each constructor of a type."""
        known = self.types[type].values()
        sizes = [counts(each) if each.fields else 1 for each in known]
        return dict(zip(self.types[type], zip(accumulate(sizes, initial=0), sizes)))

    def number_arrays(self, arrays: Arrays, type: str) -> dict[str, tuple[int, int]]:
        """Number the nodes of a forest, as `numbering`; arrays without nodes may be missing."""

        def count(constructor: ConstructorPort) -> int:
            for field in constructor.fields:
                if field.offsets:
                    return len(arrays[field.offsets]) - 1
                if field.values in arrays:
                    return len(arrays[field.values])
            return 0

        return self.numbering(type, count)

    def unknown(self, type: str, name: Any, at: str = "") -> InputError:
        """The error for a constructor that a type does not have."""
        known = self.types[type]
        hint = suggestion(name, known) or f"constructors of {type}: {quote_list(known)}"
        return InputError(f"{self.where}{at}: {type} has no constructor {short_repr(name)}", hint)

    def whole(self, field: FieldPort, value: Any, what: str) -> numpy.ndarray:
        """The values of a tensor field, given as one array."""
        spec = self.specs.get(field.values)
        dtype = None if spec is None else spec.dtype.numpy

        def fail(number: int, problem: str) -> NoReturn:
            raise InputError(f"{self.where}: {what} {problem}")

        array = _array(value, dtype, 0, fail)
        if dtype is None and not hasattr(value, "dtype"):
            self.untyped.add(field.values)
        wanted = ", ".join(["nodes", *map(str, field.shape)])
        if array.ndim != 1 + len(field.shape) or any(
            size.constant not in (None, have) for size, have in zip(field.shape, array.shape[1:])
        ):
            fail(0, f"has shape {list(array.shape)}, expected [{wanted}]")
        if dtype is None and array.dtype.kind in "OSUmM":
            fail(0, f"is {array.dtype}, expected numbers")
        if dtype is not None and array.dtype.newbyteorder("=") != dtype:
            raise InputError(f"{self.where}: {what} is {array.dtype}, expected {dtype.name}",
                             f"convert it: array.astype('{dtype.name}')")  # fmt: skip
        return array

    def column(self, field: FieldPort, values: Sequence[Any], fail: Fail) -> numpy.ndarray:
        """The values of a tensor field, one per node, as one array.

        Calls `fail` with a node and the problem for one that does not fit.
        """
        spec = self.specs.get(field.values)
        dtype = None if spec is None else spec.dtype.numpy
        kinds = set(map(type, values))
        if not any(hasattr(kind, "dtype") for kind in kinds):  # Python numbers, lists of them
            try:
                made = of_numbers(values, dtype)
            except (TypeError, ValueError):
                made = None
            if made is not None and _fits(field, made.shape[1:], made.dtype, dtype):
                if dtype is None:
                    self.untyped.add(field.values)
                return made
        if len(kinds) == 1 and issubclass(next(iter(kinds)), numpy.generic):
            made = numpy.array(values)
            if _fits(field, (), made.dtype, dtype):
                return made
        if kinds != {numpy.ndarray}:
            values = [_array(value, dtype, number, fail) for number, value in enumerate(values)]
        shapes = set(map(attrgetter("shape"), values))
        dtypes = set(map(attrgetter("dtype"), values))
        shape, given = next(iter(shapes)), next(iter(dtypes))
        if len(shapes) > 1 or len(dtypes) > 1 or not _fits(field, shape, given, dtype):
            self._misfit(field, values, dtype, fail)
        return numpy.concatenate([each.reshape(1) for each in values] if not shape else values
                                 ).reshape(len(values), *shape)  # fmt: skip

    def _misfit(
        self, field: FieldPort, values: Sequence[numpy.ndarray], dtype: Any, fail: Fail
    ) -> NoReturn:  # fmt: skip
        """Report the first value that does not fit the declaration, or the first value."""
        first = values[0]
        for number, each in enumerate(values):
            if not _fits(field, each.shape, each.dtype, dtype):
                wanted = "" if dtype is None else f"{dtype.name} "
                fail(number, f"is {each.dtype} {list(each.shape)}, expected {wanted}{_axes(field)}")
            if each.shape != first.shape or each.dtype != first.dtype:
                fail(number, f"is {each.dtype} {list(each.shape)}, "
                             f"in another node {first.dtype} {list(first.shape)}")  # fmt: skip
        raise AssertionError("one value does not fit")


def _axes(field: FieldPort) -> str:
    return f"[{', '.join(map(str, field.shape))}]"


def _fits(field: FieldPort, shape: tuple[int, ...], given: Any, dtype: Any) -> bool:
    """Whether a value has the dtype, the rank and the fixed sizes of its field."""
    return (
        len(shape) == len(field.shape)
        and (given.kind not in "OSUmM" if dtype is None else given.newbyteorder("=") == dtype)
        and all(size.constant in (None, have) for size, have in zip(field.shape, shape))
    )


def of_numbers(values: Any, dtype: Any) -> numpy.ndarray:
    """Numbers as an array of a type, if it is known."""
    return array_of_numbers(values, numpy.asarray(values).dtype if dtype is None else dtype)


def _array(value: Any, dtype: Any, number: int, fail: Fail) -> numpy.ndarray:
    """A value of a tensor field as an array."""
    if type(value) is not numpy.ndarray and isinstance(value, numpy.ma.MaskedArray):
        fail(number, "is a masked array, expected a plain one: array.filled(value)")
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return numpy.asarray(value)
    try:
        if hasattr(value, "__dlpack__"):
            return shared_array(value, "the value")
        return of_numbers(value, dtype)
    except InputError as error:
        fail(number, error.problem)
    except (TypeError, ValueError) as error:
        fail(number, f"is {short_repr(value)}, expected a tensor: {error}")


# ---- fields of constructors-----------------------------------------------------------------------


def is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def by_constructor(schema: Schema, fields: Fields) -> dict[tuple[str, str], Mapping[str, Any]]:
    """The fields of each constructor; raises InputError for an unknown or an ambiguous name."""
    made = {}
    for key, parts in fields.items():
        type, _, name = key.rpartition(".")
        found = [each for each in schema.types if name in schema.types[each]]
        found = [each for each in found if type in ("", each)]
        if not found:
            known = [name for each in schema.types.values() for name in each]
            raise InputError(
                f"{schema.where}: there is no constructor '{key}'",
                suggestion(key, known) or f"constructors: {quote_list(known)}",
            )
        if len(found) > 1:
            raise InputError(
                f"{schema.where}: {quote_list(found)} have a constructor '{name}'",
                f"write the type, too: '{found[0]}.{name}'",
            )
        made[found[0], name] = parts
    return made


def check_names(schema: Schema, constructor: ConstructorPort, given: Mapping[str, Any]) -> None:
    """Raise InputError for a missing and for an unknown field of a constructor."""
    known = [field.name for field in constructor.fields]
    for name in given:
        if name not in known:
            raise InputError(
                f"{schema.where}: '{constructor.name}' has no field '{name}'",
                suggestion(name, known) or f"its fields: {quote_list(known)}",
            )
    missing = [name for name in known if name not in given]
    if missing:
        raise InputError(f"{schema.where}: field {quote_list(missing)} of '{constructor.name}' is "
                         "missing", "give an array with a value for each node")  # fmt: skip


def put(
    schema: Schema, constructor: ConstructorPort, field: FieldPort, value: Any, made: Arrays
) -> None:
    """Add the array of a field, or its two arrays."""
    what = f"field '{field.name}' of '{constructor.name}'"
    if field.offsets:
        parts = value
        if not is_pair(value):
            parts = getattr(value, "values", None), getattr(value, "offsets", None)
            parts = tuple(each() if callable(each) else each for each in parts)
        if parts[0] is None or parts[1] is None:
            raise InputError(f"{schema.where}: {what} is {short_repr(value)}, expected a pair",
                             "give (numbers of nodes, offsets [nodes + 1])")  # fmt: skip
        made[field.values] = integers(schema.where, what, parts[0])
        made[field.offsets] = integers(schema.where, f"offsets of {what}", parts[1])
    elif field.type:
        made[field.values] = integers(schema.where, what, value)
    else:
        made[field.values] = schema.whole(field, value, what)


# ---- checks --------------------------------------------------------------------------------------


def integers(where: str, what: str, value: Any, rank: int = 1) -> numpy.ndarray:
    """An array of int64, without a copy where it is one."""
    try:
        found = numpy.asarray(value)
    except (TypeError, ValueError):
        found = numpy.zeros(())
    if found.ndim != rank or (found.dtype.kind not in "iu" and found.size):
        raise InputError(
            f"{where}: {what} is {found.dtype} {list(found.shape)}, "
            f"expected integers with {axes_text(rank)}"
        )
    return numpy.ascontiguousarray(found, numpy.int64)


def within(where: str, nodes: numpy.ndarray, low: int, high: int, what: str, of: str) -> None:
    """Raise InputError for a number that is out of bounds."""
    if len(nodes) and (nodes.min() < low or nodes.max() >= high):
        wrong = nodes[(nodes < low) | (nodes >= high)]
        raise InputError(f"{where}: {what} to {int(wrong[0])} of {of}")


def increasing(where: str, offsets: numpy.ndarray, what: str, total: int | None) -> None:
    """Raise InputError for offsets that do not increase from 0 to a total."""
    if not len(offsets):
        raise InputError(f"{where}: {what} are empty", "give offsets [nodes + 1]")
    if total is not None and (offsets[0] != 0 or offsets[-1] != total):
        raise InputError(
            f"{where}: {what} start with {int(offsets[0])} and end with {int(offsets[-1])}",
            f"offsets increase from 0 to {total}, the number of structures",
        )
    falling = offsets[1:] < offsets[:-1]
    if falling.any():
        node = int(numpy.flatnonzero(falling)[0])
        raise InputError(
            f"{where}, node {node}: {what} fall from {int(offsets[node])} to "
            f"{int(offsets[node + 1])}",
            "the structures of a node are from its offset up to the next one",
        )


def check_arrays(schema: Schema, arrays: Arrays) -> Arrays:
    """Raise InputError for arrays of a forest that do not fit each other; else return them."""
    port = schema.port
    totals = {
        each.name: sum([_count(schema, constructor, arrays) for constructor in each.constructors])
        for each in port.types
    }
    roots = arrays[port.roots] = integers(schema.where, "roots", arrays[port.roots])
    wrong = _outside(roots, totals[port.type])
    if wrong is not None:
        raise InputError(
            f"{schema.where}, tree {wrong}: its root is node {int(roots[wrong])} of "
            f"{totals[port.type]}",
            f"nodes of {port.type} have the numbers 0 to {totals[port.type] - 1}",
        )
    for type, constructor, field in schema.references:
        wrong = _outside(arrays[field.values], totals[field.type])
        if wrong is not None:
            place = wrong
            if field.offsets:
                place = int(numpy.searchsorted(arrays[field.offsets], wrong, "right")) - 1
            node = schema.number_arrays(arrays, type)[constructor.name][0] + place
            tree = _tree_of(schema, arrays, (type, node))
            raise InputError(
                f"{schema.where}{'' if tree is None else f', tree {tree}'}, node {node} "
                f"('{constructor.name}'): field '{field.name}' refers to node "
                f"{int(arrays[field.values][wrong])} of {totals[field.type]}",
                f"nodes of {field.type} have the numbers 0 to {totals[field.type] - 1}",
            )
    return arrays


def _outside(nodes: numpy.ndarray, total: int) -> int | None:
    """The position of the first number that is negative, or not below a total."""
    unsigned = nodes.view(numpy.uint64)  # negative numbers are large
    if not len(nodes) or numpy.maximum.reduce(unsigned) < total:
        return None
    return int(numpy.flatnonzero(unsigned >= total)[0])


def _count(schema: Schema, constructor: ConstructorPort, arrays: Arrays) -> int:
    """The number of nodes of a constructor; raises InputError if its fields have several."""
    if not constructor.fields:
        return 1
    first, count = "", 0
    for field in constructor.fields:
        if field.offsets:
            what = f"offsets of field '{field.name}' of '{constructor.name}'"
            increasing(schema.where, arrays[field.offsets], what, len(arrays[field.values]))
            have = len(arrays[field.offsets]) - 1
        elif field.values in arrays:
            have = len(arrays[field.values])
        else:
            have = 0
        if first and have != count:
            raise InputError(
                f"{schema.where}: '{constructor.name}' has {count_of(count, 'node')} in field "
                f"'{first}', and {have} in field '{field.name}'",
                "each field has one value per node of the constructor",
            )
        first, count = field.name, have
    return count


# ---- references ----------------------------------------------------------------------------------


Key = tuple[str, int]  # a type and a node


def references(schema: Schema, arrays: Arrays) -> dict[Key, list[Key]]:
    """The nodes that each node refers to."""
    found: dict[Key, list[Key]] = {}
    for type in schema.types:
        for name, (first, count) in schema.number_arrays(arrays, type).items():
            for field in (f for f in schema.types[type][name].fields if f.type):
                ends = arrays[field.offsets].tolist() if field.offsets else range(count + 1)
                nodes = [(field.type, node) for node in arrays[field.values].tolist()]
                for number in range(count):
                    held = found.setdefault((type, first + number), [])
                    held += nodes[ends[number] : ends[number + 1]]
    return found


def _tree_of(schema: Schema, arrays: Arrays, wanted: Key) -> int | None:
    """The first tree with a node; None if no tree has it."""
    below, seen = references(schema, arrays), set[Key]()
    for tree, root in enumerate(arrays[schema.port.roots].tolist()):
        stack = [(schema.port.type, root)]
        while stack:
            key = stack.pop()
            if key == wanted:
                return tree
            if key not in seen:
                seen.add(key)
                stack += below.get(key, ())
    return None


# ---- dims ----------------------------------------------------------------------------------------


def solve_dims(
    pairs: Iterable[tuple[Size, int]], known: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The dims that axes of these sizes and lengths determine, besides those that are known."""
    found, compound = dict(known or {}), []
    for size, length in pairs:
        if size.atom is not None:
            found.setdefault(str(size), length)
        elif size.constant is None:
            compound.append((size, length))
    for size, length in compound:
        (name, *more) = (*(size.symbols - found.keys()), "")
        split = size.substitute(found).linear_in((name,)) if name and len(more) == 1 else None
        factor = split[0][name].constant if split and name in split[0] else None
        if split and factor and split[1].constant is not None:
            found[name] = (length - split[1].constant) // factor
    return found
