"""Structure inputs of a program: conversion of calls, errors about fields, sizes for plans."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import DimError, InputError
from anydim.runtime.arrays import missing_input
from anydim.runtime.forest import Arrays, Schema, solve_dims
from anydim.runtime.lists import StructurePort
from anydim.runtime.nested import refuse_cycles
from anydim.runtime.signature import TensorSpec
from anydim.runtime.structures import Structure, read
from anydim.sizes import Box, Size

_FAULT = re.compile(r"\.fault'? ")  # of the dim of faults in structures (`kernels/routines`)


class Forests:
    """Converts the structure inputs and the results of a program; made once for all calls.

    `specs` are the inputs of the program by name, `box` has the bounds of its dims.
    """

    def __init__(
        self, model: str, lists: Mapping[str, Any], specs: Mapping[str, TensorSpec], box: Box
    ) -> None:
        self.model, self.specs, self.box = model, specs, box
        self.schemas = {
            name: Schema(port, f"{model}: input '{name}'", specs)
            for name, port in lists.items()
            if isinstance(port, StructurePort) and port.roots in specs
        }  # fmt: skip
        self.results = {
            name: port for name, port in lists.items()
            if isinstance(port, StructurePort) and port.roots not in specs
        }  # fmt: skip
        self.tensors = {
            field.values: (schema.where, constructor.name, field)
            for schema in self.schemas.values()
            for _, constructor, field in schema.fields() if not field.type
        }  # fmt: skip
        dims = frozenset[str]().union(
            *(size.symbols for _, _, field in self.tensors.values() for size in field.shape)
        )
        hidden = {
            name for schema in self.schemas.values()
            for name in (schema.port.roots, *schema.port.hidden)
        }  # fmt: skip
        self.others = {
            name: spec for name, spec in specs.items()
            if name not in hidden and any(size.symbols & dims for size in spec.shape)
        }  # fmt: skip

    def pack(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """The inputs of the program, and whether all structures are single ones.

        Raises InputError for what is no structure.
        """
        feeds, all_single = dict(given), True
        for name, schema in self.schemas.items():
            if name not in feeds:
                raise missing_input(self.model, name, given, self.schemas)
            arrays, single = read(schema, feeds.pop(name))
            feeds.update(arrays)
            all_single &= single
        missing = [name for name in self.tensors if name not in feeds]
        if missing:
            feeds.update(self._empty(feeds, missing))
        return feeds, all_single

    def _empty(self, feeds: Mapping[str, Any], missing: Sequence[str]) -> Arrays:
        """Arrays of the tensor fields without nodes, in the sizes of the other inputs.

        A dim that no other input determines has its lower bound.
        """
        dims = solve_dims((size, length) for size, length, _, _ in self._axes(feeds))
        sizes = {dim.name: dims.get(dim.name, dim.lo) for dim in self.box.dims}
        made = {}
        for name in missing:
            shape = (size.evaluate(sizes) for size in self.tensors[name][2].shape)
            made[name] = numpy.zeros((0, *shape), self.specs[name].dtype.numpy)
        return made

    def _axes(self, feeds: Mapping[str, Any]) -> Iterator[tuple[Size, int, str, str]]:
        """(size, length, input, owner) of the axes that tell the dims of tensor fields."""
        for name, spec in self.others.items():
            if name in feeds:
                where = f"{self.model}: input '{name}'"
                for size, length in zip(spec.shape, numpy.shape(feeds[name])):
                    yield size, length, where, f"input '{name}'"
        for name, (where, constructor, field) in self.tensors.items():
            if name in feeds:
                for size, length in zip(field.shape, feeds[name].shape[1:]):
                    yield size, length, where, f"field '{field.name}' of '{constructor}'"

    def explain_error(self, error: DimError, feeds: Mapping[str, Any]) -> DimError:
        """The error of a call, in terms of fields where two of them disagree on a dim.

        Raises InputError for structures that contain themselves, or share too many nodes.
        """
        if _FAULT.search(error.problem):
            for schema in self.schemas.values():
                refuse_cycles(schema, dict(feeds))
            raise InputError(
                f"{self.model}: structures share nodes, and calls with several structures, or with "
                "values that go down, would visit them too often",
                "give copies of shared nodes, or match one structure at a time",
            ) from None
        source = dict[str, tuple[int, str]]()
        for size, length, where, what in self._axes(feeds):
            if size.atom is None:
                continue
            known, first = source.setdefault(str(size), (length, what))
            if known != length:
                return DimError(
                    f"{where}: dim '{size}' is {length} in {what}, and {known} in {first}",
                    "inputs must agree on every dim",
                )
        return error

    def unpack(self, results: Mapping[str, Any], single: bool) -> dict[str, Any]:
        """Results as the user sees them; for a single structure without the axis of trees."""
        hidden = {name for port in self.results.values() for name in port.hidden}
        of = {port.roots: name for name, port in self.results.items()}
        found: dict[str, Any] = {}
        for name, value in results.items():
            if name in of:
                port = self.results[of[name]]
                arrays = {each: results[each] for each in (port.roots, *port.hidden)}
                arrays = drop_unreachable(
                    Schema(port, f"{self.model}: result '{of[name]}'"), arrays
                )
                found[of[name]] = Structure.bound(port, arrays, single)
            elif name not in hidden:
                found[name] = value.reshape(value.shape[1:]) if single else value
        return found

    def sizes(self, given: Mapping[str, Any]) -> dict[str, int]:
        """The dims of a call with these structures that shapes determine.

        Other structure inputs of the program may be missing.
        """
        pairs: list[Any] = []
        for name, value in given.items():
            schema = self.schemas[name]
            arrays, _ = read(schema, value)
            pairs += self.measure(schema, arrays)
        return solve_dims(pairs)

    def measure(self, schema: Schema, arrays: Arrays) -> list[tuple[Size, int]]:
        """The sizes of a forest and their values: those of the axes of its arrays."""
        return [
            pair for name in (schema.port.roots, *schema.port.hidden)
            for pair in zip(
                self.specs[name].shape, arrays[name].shape if name in arrays else (0,)
            )
        ]  # fmt: skip


# ---- results -------------------------------------------------------------------------------------

_FEW = 64  # nodes of a level that are visited one by one


def drop_unreachable(schema: Schema, arrays: Arrays) -> Arrays:
    """The arrays of a forest without the nodes that no tree refers to.

    The forest has no cycles and no field with any number of structures. If each node but the roots
    is part of another one, nothing is removed.
    """
    if not _has_unused(schema, arrays):
        return arrays
    numbers = {type: schema.number_arrays(arrays, type) for type in schema.types}
    kept = _reachable(schema, arrays, numbers)
    new = {type: numpy.cumsum(mask) - 1 for type, mask in kept.items()}
    made = {schema.port.roots: new[schema.port.type][arrays[schema.port.roots]]}
    for type, constructor, field in schema.fields():
        first, count = numbers[type][constructor.name]
        values = arrays[field.values][kept[type][first : first + count]]
        made[field.values] = new[field.type][values] if field.type else values
    return made


def _has_unused(schema: Schema, arrays: Arrays) -> bool:
    """Whether a node is neither a root nor part of another node."""
    referred = {type: [numpy.zeros(0, numpy.int64)] for type in schema.types}
    referred[schema.port.type].append(arrays[schema.port.roots])
    for _, _, field in schema.references:
        referred[field.type].append(arrays[field.values])
    for type, known in schema.types.items():
        numbers = schema.number_arrays(arrays, type)
        used = numpy.zeros(sum(count for _, count in numbers.values()), bool)
        for values in referred[type]:
            used[values] = True
        used[[numbers[name][0] for name, each in known.items() if not each.fields]] = True
        if not used.all():
            return True
    return False


def _reachable(
    schema: Schema, arrays: Arrays, numbers: Mapping[str, Mapping[str, tuple[int, int]]]
) -> dict[str, numpy.ndarray]:
    """Masks of the nodes of each type that are part of a tree, or have no fields."""
    kept = {
        type: numpy.zeros(sum(count for _, count in each.values()), bool)
        for type, each in numbers.items()
    }
    parts: dict[str, list[tuple[int, int, str, str]]] = {type: [] for type in kept}
    for type, constructor, field in schema.references:
        first, count = numbers[type][constructor.name]
        parts[type].append((first, first + count, field.type, field.values))
    waiting = {schema.port.type: [arrays[schema.port.roots]]}
    while waiting:
        type, found = waiting.popitem()
        level = numpy.concatenate(found)
        level = numpy.unique(level[~kept[type][level]])
        if len(level) < _FEW:
            for other, nodes in _mark_each(type, level.tolist(), kept, parts, arrays):
                waiting.setdefault(other, []).append(numpy.array([nodes]))
            continue
        kept[type][level] = True
        for first, end, inner, values in parts[type]:
            low, high = numpy.searchsorted(level, (first, end))
            if low < high:
                waiting.setdefault(inner, []).append(arrays[values][level[low:high] - first])
    for type, known in schema.types.items():
        kept[type][[numbers[type][n][0] for n, each in known.items() if not each.fields]] = True
    return kept


def _mark_each(
    type: str, level: list[int], kept: dict[str, numpy.ndarray],
    parts: Mapping[str, list[tuple[int, int, str, str]]], arrays: Arrays,
) -> list[tuple[str, int]]:  # fmt: skip
    """Mark the nodes below a few nodes, one by one: structures may be deep.

    Returns the nodes of the first level that has many.
    """
    marks = {each: mask.view(numpy.uint8).data for each, mask in kept.items()}
    fields = {
        each: [(first, end, inner, arrays[values].data) for first, end, inner, values in own]
        for each, own in parts.items()
    }
    nodes = [(type, node) for node in level]
    while 0 < len(nodes) < _FEW:
        below: list[tuple[str, int]] = []
        for type, node in nodes:
            if marks[type][node]:
                continue
            marks[type][node] = 1
            for first, end, inner, values in fields[type]:
                if first <= node < end:
                    below.append((inner, values[node - first]))
        nodes = below
    return nodes
