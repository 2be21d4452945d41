"""Normalizes a group of ordered steps, to be emitted as one kernel.

After: every step is a loop, a branch or a write; a write that reads elements of its target that it
may overwrite reads them from a copy; a tensor with elements that may be read or returned unwritten
starts as zeros; every temporary has a size that is known before the kernel runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels.inference import free_axes
from anydim.lang.dependence.accesses import Instance, accesses, instances, steps_of
from anydim.lang.dependence.chunks import Chunks, split_ranges
from anydim.lang.dependence.distances import same_iteration
from anydim.lang.dependence.rings import rings
from anydim.lang.dependence.starts import filled_before_reads
from anydim.lang.tree import (
    Axis,
    Branch,
    Group,
    Index,
    Literal,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Tensor,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import affine, reads
from anydim.lang.tree.stepping import expressions_of, variables_of
from anydim.sizes import Atom, Box, Size, as_size, maximum, minimum

Ranges: TypeAlias = "dict[str, tuple[Size, Size] | None]"  # of loop variables


@dataclass(frozen=True)
class NestForm:
    """The steps of a kernel, its tensors, and the ranges that can be split over threads.

    `temporaries` have the shapes that are allocated: upper bounds without loop variables; `types`
    has the shapes at their uses.
    """

    group: Group
    steps: tuple[OrderedStep, ...]
    temporaries: tuple[Tensor, ...]
    types: dict[str, TensorType]
    variables: frozenset[str]
    chunks: tuple[Chunks, ...]
    rings: Mapping[str, tuple[int, int]]  # temporary -> dimension, slices in its ring buffer


def nest_form(group: Group, box: Box) -> NestForm | None:
    """The form of a group; None when the size of a temporary has no bound known before the kernel
    runs."""
    builder = _Builder(group, box)
    steps = builder.steps(steps_of(group))
    ranges = loop_ranges(steps)
    temporaries = []
    for tensor in (*group.temporaries, *builder.made):
        spans = [extremes(size, ranges) for size in tensor.type.shape]
        shape = tuple(maximum(0, span[1]) if span[0] != span[1] else span[1]
                      for span in spans if span is not None)  # fmt: skip
        if len(shape) < len(spans):
            return None
        temporaries.append(Tensor(tensor.name, TensorType(tensor.type.dtype, shape)))
    fixed = {t.name: t.type for t in (*group.inputs, *group.outputs, *temporaries)}
    kept = [(t, True) for t in group.outputs] + [(t, False) for t in temporaries]
    steps = (*_zeros(steps, kept, fixed, box), *steps)
    found = instances(steps)
    hidden = [tensor.name for tensor in temporaries]
    shown = (*group.inputs, *group.outputs, *group.temporaries, *builder.made)
    return NestForm(
        group, steps, tuple(temporaries), {t.name: t.type for t in shown},
        frozenset(variables_of(steps)),
        tuple(split_ranges(found, fixed, hidden, box)), rings(found, fixed, hidden, box),
    )  # fmt: skip


# ---- steps -------------------------------------------------------------------------------------


class _Builder:
    """Rewrites steps; `made` are the copies for writes of tensors that they read."""

    def __init__(self, group: Group, box: Box) -> None:
        self.box = box
        self.made: list[Tensor] = []
        tensors = (*group.inputs, *group.outputs, *group.temporaries)
        self.types = {tensor.name: tensor.type for tensor in tensors}
        self.found = {i.number: i for i in instances(steps_of(group)) if i.write is not None}
        self.number = 0

    def steps(self, steps: Iterable[OrderedStep]) -> tuple[OrderedStep, ...]:
        found: list[OrderedStep] = []
        for step in steps:
            if isinstance(step, Loop):
                found.append(replace(step, body=self.steps(step.body)))
            elif isinstance(step, Branch):
                then, otherwise = self.steps(step.then), self.steps(step.otherwise)
                found.append(replace(step, then=then, otherwise=otherwise))
            else:
                found += self._write(self.found[self.number])
                self.number += 1
        return tuple(found)

    def _write(self, instance: Instance) -> list[Write]:
        write = instance.write
        assert write is not None
        reads_in_indices = any(
            read.tensor == write.target for i in write.indices for read in reads(i)
        )
        copied = reads_in_indices or self._overwrites_own_reads(instance)
        names = {axis.name for axis in write.reduced}
        if write.combine and not write.fresh and any(free_axes(i) & names for i in write.indices):
            write = replace(write, axes=(*write.axes, *write.reduced), reduced=())
        if not write.reduced and write.fresh:
            write = replace(write, combine="", fresh=False)
        return self._write_by_copies(write, reads_in_indices) if copied else [write]

    def _overwrites_own_reads(self, instance: Instance) -> bool:
        """Whether a write may overwrite an element that a later point of it still reads."""
        write = instance.write
        assert write is not None
        all = accesses(instance, self.types)
        own = [a for a in all if a.tensor == write.target and not a.writes]
        own = own[:-1] if write.combine and not write.fresh else own
        still = one_to_one(write)
        return any(
            not (still and access.indices == write.indices)
            and same_iteration(access, all[-1], self.box)
            for access in own
        )

    def _write_by_copies(self, write: Write, copy_indices: bool) -> list[Write]:
        """Two writes: of all values, and their indices, to copies, then from the copies."""
        value = self._copy(write, self.types[write.target].dtype)
        combine = write.combine if write.reduced else ""
        steps = [
            replace(
                write, target=value.tensor, indices=value.indices, combine=combine,
                fresh=bool(combine),
            )
        ]  # fmt: skip
        place = write.indices
        if copy_indices:
            kept = [self._copy(write, int64) for _ in place]
            steps += [
                Write(copy.tensor, copy.indices, write.axes, index)
                for copy, index in zip(kept, place)
            ]
            place = tuple(kept)
        combine = "" if write.fresh else write.combine
        return [*steps, Write(write.target, place, write.axes, value, combine)]

    def _copy(self, write: Write, dtype: DType) -> Read:
        name = f"{write.target} copy {len(self.made)}"
        shape = tuple(axis.extent for axis in write.axes)
        self.made.append(Tensor(name, TensorType(dtype, shape)))
        return Read(name, tuple(Index(axis.name) for axis in write.axes))


def one_to_one(write: Write) -> bool:
    """Whether different axis values write different elements, judged by indices of a single
    axis."""
    distinguished = {
        form.terms[0][0] for form in map(affine, write.indices) if form and len(form.terms) == 1
    }
    return distinguished >= {axis.name for axis in write.axes if axis.extent != 1}


def _zeros(
    steps: tuple[OrderedStep, ...], tensors: Iterable[tuple[Tensor, bool]],
    types: dict[str, TensorType], box: Box,
) -> tuple[Write, ...]:  # fmt: skip
    """Writes of zeros to tensors that may be read, or returned, before they are written."""
    found = instances(steps)
    made = []
    for tensor, kept in tensors:
        if not filled_before_reads(tensor.name, found, types, box, kept):
            names = _axis_names(tensor, found)
            axes = tuple(Axis(name, size) for name, size in zip(names, tensor.type.shape))
            place = tuple(Index(axis.name) for axis in axes)
            made.append(Write(tensor.name, place, axes, Literal(0, tensor.type.dtype)))
    return tuple(made)


def _axis_names(tensor: Tensor, found: tuple[Instance, ...]) -> list[str]:
    """Names for the axes of a tensor, from the axes and loops of its first write."""
    first = next((i.write for i in found if i.write and i.write.target == tensor.name), None)
    names: list[str] = []
    for number in range(tensor.type.rank):
        form = None if first is None else affine(first.indices[number])
        name = "" if form is None else str(form.constant.atom or "")
        name = form.terms[0][0] if form is not None and len(form.terms) == 1 else name
        names.append(f"i{number}" if not name or name in names else name)
    return names


# ---- bounds ------------------------------------------------------------------------------------


def loop_ranges(steps: Iterable[OrderedStep], around: Ranges | None = None) -> Ranges:
    """The minimum and maximum of every loop variable; loops of one name share a range."""
    found: Ranges = dict(around or {})
    for step in steps:
        if isinstance(step, Branch):
            found = loop_ranges((*step.then, *step.otherwise), found)
        elif isinstance(step, Loop):
            span = _span(step, found)
            known = found.get(step.variable, span) if step.variable in found else span
            if span is None or known is None:
                found[step.variable] = None
            else:
                low, high = minimum(span[0], known[0]), maximum(span[1], known[1])
                found[step.variable] = low, high
            found = loop_ranges(step.body, found)
    return found


def _span(loop: Loop, around: Ranges) -> tuple[Size, Size] | None:
    if not isinstance(loop.start, SizeTerm) or not isinstance(loop.stop, SizeTerm):
        return None
    first, last = (loop.start, loop.stop) if loop.step > 0 else (loop.stop, loop.start)
    low, high = extremes(first.size, around), extremes(last.size, around)
    if low is None or high is None:
        return None
    return (low[0], high[1] - 1) if loop.step > 0 else (low[0] + 1, high[1])


def extremes(size: Size, ranges: Ranges) -> tuple[Size, Size] | None:
    """Bounds of a size, free of loop variables; None where unknown."""
    names = size.symbols & ranges.keys()
    if not names:
        return size, size
    split = size.linear_in(sorted(names))
    if split is None:
        return _bounds_of_atom(size, ranges)
    factors, low = split
    high = low
    for name, factor in factors.items():
        span, by = ranges[name], factor.constant
        if span is None or by is None or factor.symbols & ranges.keys():
            return None
        ends = (span[0] * by, span[1] * by) if by > 0 else (span[1] * by, span[0] * by)
        low, high = low + ends[0], high + ends[1]
    return low, high


def _bounds_of_atom(size: Size, ranges: Ranges) -> tuple[Size, Size] | None:
    """Bounds of a quotient, remainder, minimum or maximum."""
    atom = size.atom
    if not isinstance(atom, Atom):
        return None
    parts = [extremes(argument, ranges) for argument in atom.arguments]
    spans = [part for part in parts if part is not None]
    if len(spans) < len(parts):
        return None
    by = atom.arguments[-1].constant
    if atom.function == "floordiv" and by is not None and by > 0:
        return spans[0][0] // by, spans[0][1] // by
    if atom.function == "mod" and by is not None and by > 0:
        return as_size(0), as_size(by - 1)
    if atom.function in ("min", "max"):
        pick = minimum if atom.function == "min" else maximum
        return pick(*(low for low, _ in spans)), pick(*(high for _, high in spans))
    return None


# ---- a copy first -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copy:
    """The first step of a nest, which copies all of `read`, an operand, to `made`, a result.

    If the operand is dead afterwards, or the caller passes one array for both, the result may share
    its buffer, and the copy is skipped: updating a cache then costs only the time of its new
    entries.
    """

    write: Write
    made: str
    read: str


def first_copy(form: NestForm) -> Copy | None:
    """The copy that a nest starts with; None if it does not, or reads the operand again."""
    if not form.steps or not isinstance(form.steps[0], Write):
        return None
    write, body = form.steps[0], form.steps[0].body
    axes = tuple(Index(axis.name) for axis in write.axes)
    plain = isinstance(body, Read) and body.default is None and not body.flat
    if not plain or not isinstance(body, Read) or write.combine or write.reduced:
        return None
    if write.indices != axes or body.indices != axes:
        return None
    inputs, outputs = (
        {t.name: t.type for t in of} for of in (form.group.inputs, form.group.outputs)
    )
    kind = inputs.get(body.tensor)
    if kind is None or outputs.get(write.target) != kind:
        return None
    if tuple(axis.extent for axis in write.axes) != kind.shape:
        return None
    found = [read.tensor for _, expr in expressions_of(form.steps) for read in reads(expr)]
    return Copy(write, write.target, body.tensor) if found.count(body.tensor) == 1 else None
