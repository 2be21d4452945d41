"""Launches whose results depend only on sizes: run once for distinct sizes instead of in each call.

Such a launch reads only constants and results of such launches, and makes no graph output. Launches
with the same dims form a setup: it runs again if one of these dims has a size without a cached
result. Values that other launches read are stored in a separate block, the rest in the arena.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.compiler.kernels.launch import STATUS_TENSOR
from anydim.compiler.passes.flow import unique_name
from anydim.compiler.passes.in_place import number_launches
from anydim.compiler.passes.schedule import Alias, Scheduled
from anydim.runtime.program.segment import ALIGNMENT
from anydim.sizes import Size, align_up, as_size
from anydim.sizes.sampling import Sampled, samples

WORTH = 4096.0  # operations plus a quarter of bytes moved, of all setups, at the largest sample
SHARED = 4096  # minimum bytes of a block that calls share
_POINTS = 6


@dataclass(frozen=True)
class Setup:
    """The next `launches` of a segment. `values` maps kept values to their offsets in a block of
    `bytes` bytes, which calls share if it has `min_shared` bytes or more."""

    dims: tuple[str, ...]
    launches: int
    values: Mapping[str, Size]
    bytes: Size
    min_shared: int


def with_setups(
    launches: Sequence[Scheduled], root: Callable[[str], str], bytes_of: Callable[[str], Size],
    graph: Graph,
) -> tuple[list[Scheduled], tuple[Setup, ...]]:  # fmt: skip
    """Reorder launches with setups first; return the launches and the setups.

    No setups if all of them together cost less than rerunning them at new sizes.
    """
    found = _Found(launches, root, graph)
    if not found.dims or not _worth(found.launches, graph):
        return list(launches), ()
    found.move_to_readers()
    groups: dict[tuple[str, ...], list[int]] = {}
    for number in sorted(found.dims, key=lambda n: (len(found.dims[n]), n)):
        groups.setdefault(found.dims[number], []).append(number)
    setups = []
    for dims, numbers in groups.items():
        own = set(numbers)
        read = {name for n, each in enumerate(found.touched) if n not in own for name in each.reads}
        made = dict.fromkeys(name for n in numbers for name in sorted(found.touched[n].writes))
        total, values = as_size(0), {}
        for name in made:
            if name in read:
                values[name] = total
                total = total + align_up(bytes_of(name), ALIGNMENT)
        setups.append(Setup(dims, len(numbers), values, total, SHARED))
    first = [number for numbers in groups.values() for number in numbers]
    rest = [number for number in range(len(launches)) if number not in found.dims]
    return [launches[number] for number in (*first, *rest)], tuple(setups)


class _Found:
    """The launches that depend only on sizes, with these dims, by number."""

    def __init__(
        self, launches: Sequence[Scheduled], root: Callable[[str], str], graph: Graph
    ) -> None:
        self.dims: dict[int, tuple[str, ...]] = {}
        self.items = launches
        order = {name: position for position, name in enumerate(graph.box.names)}
        touched = self.touched = [_Touched.of(item, root) for item in launches]
        given = {*graph.inputs, *graph.outputs}
        while True:
            made: dict[str, set[str]] = {}
            self.dims.clear()
            for numbers in _together(launches, touched):
                writes = set().union(*(touched[n].writes for n in numbers))
                reads = set().union(*(touched[n].reads for n in numbers)) - writes
                known = all(name in made or name in graph.constants for name in reads)
                if not known or writes & given:
                    continue
                dims = {dim for number in numbers for dim in _dims(launches[number])}
                dims = dims.union(*(made.get(name, ()) for name in reads))
                if dims <= order.keys():
                    made.update(dict.fromkeys(writes, dims))
                    named = tuple(sorted(dims, key=order.__getitem__))
                    self.dims.update(dict.fromkeys(numbers, named))
            late = self._late(touched)
            if not late:
                break
            given |= late
        self.launches = [launches[number] for number in self.dims]

    def move_to_readers(self) -> None:
        """Move launches whose results only one setup reads into it: these are not kept."""
        for numbers in reversed(list(_together(self.items, self.touched))):
            if numbers[0] not in self.dims:
                continue
            writes = set().union(*(self.touched[n].writes for n in numbers))
            readers = [n for n, each in enumerate(self.touched)
                       if each.reads & writes and n not in numbers]  # fmt: skip
            dims = {self.dims.get(n) for n in readers}
            if len(dims) == 1:
                (only,) = dims
                if only is not None:
                    self.dims.update(dict.fromkeys(numbers, only))

    def _late(self, touched: Sequence[_Touched]) -> set[str]:
        """Values that other launches access before they are complete, in launch order."""
        done = {name: n for n, each in enumerate(touched) if n in self.dims for name in each.writes}
        return {
            name
            for n, each in enumerate(touched)
            if n not in self.dims
            for name in (*each.reads, *each.writes)
            if name in done and (n < done[name] or name in each.writes)
        }


@dataclass(frozen=True)
class _Touched:
    """The values, by root, that a launch only reads, and those that it writes."""

    reads: frozenset[str]
    writes: frozenset[str]

    @staticmethod
    def of(item: Scheduled, root: Callable[[str], str]) -> _Touched:
        reads: set[str] = set()
        writes: set[str] = set()
        for argument, operand in zip(item.launch.arguments, item.launch.kernel.operands):
            if argument.tensor != STATUS_TENSOR and not argument.words:
                found = writes if operand.written else reads
                found.add(root(item.values[argument.tensor]))
        if item.group.statements or item.group.steps:  # a routine's group has all it may write
            writes.update(map(root, item.writes))
        return _Touched(frozenset(reads - writes), frozenset(writes))


def _together(launches: Sequence[Scheduled], touched: Sequence[_Touched]) -> Iterator[list[int]]:
    """Groups of launch numbers that compute one group or write one value, in order."""
    group = list(range(len(launches)))
    first: dict[object, int] = {}
    for position, (number, _) in enumerate(number_launches(launches)):
        for key in (number, *touched[position].writes):
            joined, mine = group[first.setdefault(key, position)], group[position]
            group = [min(joined, mine) if each in (joined, mine) else each for each in group]
    members: dict[int, list[int]] = {}
    for position, key in enumerate(group):
        members.setdefault(key, []).append(position)
    yield from members.values()


def _dims(item: Scheduled) -> Iterator[str]:
    """The dims in the sizes of a launch and in the shapes of its results."""
    launch = item.launch
    yield from (dim for size in (*launch.sizes, launch.parallel) for dim in size.symbols)
    yield from (dim for t in item.group.outputs for size in t.type.shape for dim in size.symbols)


def _worth(launches: Iterable[Scheduled], graph: Graph) -> bool:
    at = Sampled(samples(graph.box, _POINTS, graph.guards)).at
    work = [at(item.launch.flops) + at(item.launch.moved) / 4 for item in launches]
    return bool((numpy.sum(work, axis=0) >= WORTH).any())


# ---- launches of a setup graph -----------------------------------------------------------------


def join_setup(
    setup: Graph, before: Sequence[Scheduled | Alias], graph: Graph,
    launches: Sequence[Scheduled | Alias],
) -> tuple[Graph, tuple[Scheduled | Alias, ...]]:  # fmt: skip
    """Merge a setup: return the graph without the inputs that `setup` makes, and all launches.

    Other values with the same name in both graphs are renamed in the launches of `setup`.
    """
    known: dict[str, Constant | None] = dict.fromkeys(graph.types)
    known.update((name, None) for item in launches for name in _names(item))
    known.update(graph.constants)
    given = set(setup.outputs)
    other: dict[str, str] = {}
    constants = dict(graph.constants)
    types = {**graph.types}
    own = dict.fromkeys((*setup.types, *(name for item in before for name in _names(item))))
    for name in own:
        constant = setup.constants.get(name)
        mine = known.get(name, constant) is constant
        if name in given or (mine and constant is not None) or name not in known:
            other[name] = name
        else:
            other[name] = unique_name(f"{name}/setup", {**known, **own})
            known[other[name]] = None
        if constant is not None:
            constants[other[name]] = constant
        if name in setup.types:
            types[other[name]] = setup.types[name]
    inputs = tuple(name for name in graph.inputs if name not in given)
    whole = graph.replace(inputs=inputs, types=types, constants=constants)
    return whole, (*(_rename_values(item, other) for item in before), *launches)


def _names(item: Scheduled | Alias) -> Iterable[str]:
    return (item.target, item.source) if isinstance(item, Alias) else item.values.values()


def _rename_values(item: Scheduled | Alias, names: Mapping[str, str]) -> Scheduled | Alias:
    if isinstance(item, Alias):
        return Alias(names[item.target], names[item.source])
    return replace(item, values={name: names[value] for name, value in item.values.items()})
