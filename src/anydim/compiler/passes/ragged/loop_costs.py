"""Estimates which batched nodes are faster inside the neighbouring loops over rows.

A node over all tokens reads its weights once. Between two loops it has a price: loops pass values
to it and to each other through memory, where those of all rows exceed the caches, and kernels do
not fuse across. A wide row, such as an image, needs no other rows to fill a product.

The estimates are seconds per row on a typical core, for `ROWS` rows so long that the coarsest
ragged axis has `LEAST` indices. Connected nodes are moved together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from anydim.base.errors import DimError
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.passes.ragged.groups import record_of
from anydim.sizes import Size, product

ROWS, LEAST, LONGEST = 32, 16, 1 << 17
_OTHER = 64  # other free dims
CACHE = 1 << 20  # bytes of values that stay in a core's cache
_TRAFFIC = 1e-10  # of a byte that is written and read beyond the cache
_CROSSING = 0.25e-10, 1e-6  # of a byte that enters or leaves a loop, and of its copy
_WEIGHT = 0.11e-9  # of an element of weights that each row reads anew, with partial tiles
_LAUNCH, _LOOP = 1e-6, 2e-6
_MARGIN = 2e-6  # of a row: a smaller gain is not sure
_PRODUCTS = ("contraction", "window")
_FUSED = ("elementwise", "movement", "source")  # kernels of others compute them


@dataclass(frozen=True)
class LoopCosts:
    """The costs of a graph of one row; `moving` are the values that differ between rows.

    `weight_bytes` are those of an element of weights.
    """

    graph: Graph
    ragged: frozenset[str]
    moving: frozenset[str]
    weight_bytes: float = 4.0
    readers: dict[str, list[int]] = field(default_factory=dict, init=False)
    makers: dict[str, int] = field(default_factory=dict, init=False)
    anchors: dict[int, float] = field(default_factory=dict, init=False)  # extra cost inside
    bytes: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        sizes = dict.fromkeys(
            product(self.graph.types[name].shape) for name in self.graph.types
            if name in self.moving
        )  # fmt: skip
        env = self._lengths(sizes)
        elements = {size: _value(size, env) for size in sizes}
        for name in self.moving:
            made = self.graph.types[name]
            self.bytes[name] = elements[product(made.shape)] * made.dtype.bytes
        each = _WEIGHT * self.weight_bytes / 4
        for number, node in enumerate(self.graph.nodes):
            for name in dict.fromkeys(node.given):
                self.readers.setdefault(name, []).append(number)
            self.makers.update(dict.fromkeys(node.outputs, number))
            kind = family(node)
            if kind not in _FUSED and node.operator != "batch_norm":
                self.anchors[number] = _LAUNCH + self._weights(node, kind, env) * each

    def _lengths(self, sizes: Iterable[Size]) -> dict[str, int]:
        """Lengths of a row; every ragged axis has `LEAST` indices, or the most it can have.

        That of the last token of a row has one at any length: if lengths grew for its sake, each
        row would be the longest there is, beside whose values no weights matter.
        """
        axes = {
            product(size for size in self.graph.types[name].shape if size.symbols & self.ragged)
            for name in self.moving
        }  # fmt: skip
        longest = self._sizes(LONGEST)
        least = {size: min(LEAST, _value(size, longest)) for size in axes if size.symbols}
        length = LEAST
        while length < LONGEST:
            env = self._sizes(length)
            if all(_value(size, env) >= low for size, low in least.items()):
                return env
            length *= 2
        return longest

    def _sizes(self, length: int) -> dict[str, int]:
        """The dims of a row of this length, within their bounds."""
        return {
            dim.name: max(dim.lo, min(length if dim.name in self.ragged else _OTHER,
                                      LONGEST if dim.hi is None else dim.hi))
            for dim in self.graph.box.dims
        }  # fmt: skip

    def _weights(self, node: Node, kind: str, env: Mapping[str, int]) -> float:
        if kind not in _PRODUCTS and node.operator != FUSED:
            return 0.0
        others = [name for name in node.given if name not in self.moving]
        return sum(_value(product(self.graph.types[name].shape), env) for name in others)

    # ---- choice --------------------------------------------------------------------------------

    def moved(self, inside: frozenset[int], free: Sequence[int]) -> frozenset[int]:
        """The nodes inside loops, if those of `free` may move to the ones `inside`."""
        parts = list(self._parts(free))
        if not inside or not parts:
            return inside
        grown, shrunk = (self._improve_parts(inside, parts, every) for every in (False, True))
        return (shrunk if shrunk[0] < grown[0] - _MARGIN else grown)[1]

    def _improve_parts(
        self, inside: frozenset[int], parts: Sequence[frozenset[int]], every: bool
    ) -> tuple[float, frozenset[int]]:
        """Move single parts in or out of loops as long as this is better; first `every` one in."""
        best = inside.union(*parts) if every else inside
        cost, better = self.cost(best), True
        while better:
            better = False
            for part in parts:
                other = best - part if part <= best else best | part
                found = self.cost(other)
                if found < cost - _MARGIN:
                    best, cost, better = other, found, True
        return cost, best

    def _parts(self, free: Sequence[int]) -> Iterator[frozenset[int]]:
        """Connected nodes."""
        left = dict.fromkeys(free)
        while left:
            todo, part = [next(iter(left))], set[int]()
            while todo:
                number = todo.pop()
                if number not in left:
                    continue
                del left[number]
                part.add(number)
                node = self.graph.nodes[number]
                todo += [self.makers[name] for name in node.given if name in self.makers]
                todo += [each for name in node.outputs for each in self.readers.get(name, ())]
            yield frozenset(part)

    def cost(self, inside: frozenset[int]) -> float:
        """The seconds of a row beyond the work itself."""
        stages = self._stages(inside)
        spent = _LOOP * len({stage for stage in stages if stage % 2})
        spent += sum(extra for number, extra in self.anchors.items() if number in inside)
        for name, number in self.makers.items():
            if name in self.moving:
                spent += self._storage_cost(name, stages[number], [
                    stages[each] for each in self.readers.get(name, ())
                ])  # fmt: skip
        return spent

    def _stages(self, inside: frozenset[int]) -> list[int]:
        """The stage of each node: odd numbers are loops over rows."""
        stages: list[int] = []
        for number, node in enumerate(self.graph.nodes):
            given = [stages[self.makers[n]] for n in node.given if n in self.makers]
            latest = max(given, default=0)
            stages.append(latest | 1 if number in inside else latest + latest % 2)
        return stages

    def _storage_cost(self, name: str, stage: int, readers: Sequence[int]) -> float:
        """The cost of a value between kernels."""
        bytes = self.bytes[name]
        if any(each != stage and (each % 2 or stage % 2) for each in readers):
            return bytes * _CROSSING[0] + _CROSSING[1] + _traffic(bytes, ROWS)
        if all(each not in self.anchors for each in self.readers.get(name, ())):
            return 0.0
        return _traffic(bytes, 1 if stage % 2 else ROWS)


def family(node: Node) -> str:
    """The family of a node's operator."""
    record = record_of(node)
    return "" if record is None else record.kind


def _traffic(bytes: float, rows: int) -> float:
    """The cost per row of the part of a value of `rows` rows beyond the cache."""
    return _TRAFFIC * max(0.0, bytes - CACHE / rows)


def _value(size: Size, env: Mapping[str, int]) -> float:
    try:
        return float(max(size.evaluate(env), 0))
    except DimError:  # a divisor is 0
        return 0.0
