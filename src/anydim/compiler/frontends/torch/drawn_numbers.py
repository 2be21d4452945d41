"""Random numbers of a graph of torch.compile, drawn by torch at each call.

Overloads that draw numbers become inputs of the graph, and a call fills these with torch's default
generator, in the order of the graph. So a seed gives the numbers of eager torch, dropout included.

Overloads that draw by the values of a tensor are decomposed before (`drawn_by_values`). Those of
sizes that data decide stay in the graph: their rows have seeds of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from anydim.base.records import dataclass
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.compiler.frontends.torch.sizes import size_of
from anydim.sizes import Size

_MOST_KNOWN = 256  # cached sets of draws, by sizes
_ATEN = torch.ops.aten
_DROPOUT = _ATEN.native_dropout.default
DRAWN_BY_SHAPE = {
    _ATEN.rand.default, _ATEN.rand_like.default, _ATEN.randn.default, _ATEN.randn_like.default,
    _ATEN.randint.default, _ATEN.randint.low, _ATEN.randint_like.default,
    _ATEN.randint_like.low_dtype, _ATEN.randperm.default, _ATEN.bernoulli.p,
    _ATEN.uniform.default, _ATEN.normal_functional.default, _ATEN.exponential.default,
}  # fmt: skip
"""Overloads whose numbers depend on shapes alone."""


@dataclass(frozen=True)
class _Empty:
    """A tensor argument by shape, strides and type: its values are not read."""

    shape: tuple[Size | int, ...]
    strides: tuple[Size | int, ...]
    dtype: torch.dtype

    def at(self, sizes: Mapping[str, int]) -> Callable[[], torch.Tensor]:
        """A function that allocates it at these sizes."""
        shape, strides = (
            [_number(size, sizes) for size in each] for each in (self.shape, self.strides)
        )
        return partial(torch.empty_strided, shape, strides, dtype=self.dtype)


@dataclass(frozen=True)
class _Draw:
    """The torch call that draws the numbers of one input."""

    function: Callable[..., torch.Tensor]
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]

    def at(self, sizes: Mapping[str, int]) -> Callable[[], torch.Tensor]:
        """A function that draws the numbers at these sizes."""
        arguments = [_bind_argument(each, sizes) for each in self.arguments]
        function, named = self.function, self.named

        def drawn() -> torch.Tensor:
            return function(*[e() if isinstance(e, partial) else e for e in arguments], **named)

        return drawn


class DrawnNumbers:
    """A graph whose random numbers are inputs, and the calls of torch that draw them.

    `module` has the placeholders of the graph, then one for each draw.
    """

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.symbols: dict[str, tuple[int, int | None]] = {}  # placeholder, axis
        self.draws: list[_Draw] = []
        self._known: dict[tuple[int, ...], Sequence[Callable[[], torch.Tensor]]] = {}
        self.module = module
        if any(_draws(node) for node in module.graph.nodes):
            self.module = self._separate_draws(module)

    def arguments(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """Appends drawn numbers to the arguments of a call."""
        if not self.draws:
            return tuple(given)
        sizes = tuple([
            given[place] if axis is None else given[place].shape[axis]
            for place, axis in self.symbols.values()
        ])  # fmt: skip
        return (*given, *[draw() for draw in self._draws_of(sizes)])

    def _draws_of(self, sizes: tuple[int, ...]) -> Sequence[Callable[[], torch.Tensor]]:
        """The draws at these sizes of the symbols; those of the last sizes are kept."""
        found = self._known.get(sizes)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            named = dict(zip(self.symbols, sizes))
            found = self._known[sizes] = [draw.at(named) for draw in self.draws]
        return found

    def _separate_draws(self, module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        graph = torch.fx.Graph()
        made: dict[torch.fx.Node, Any] = {}
        given = [node for node in module.graph.nodes if node.op == "placeholder"]
        for position, node in enumerate(given):
            made[node] = graph.node_copy(node)
            self._bind(node.meta.get("val"), position)
        for node in module.graph.nodes:  # placeholders come first
            draw = self._draw(node) if _draws(node) else None
            if draw is not None:
                self.draws.append(draw)
                value = node.meta["val"]
                made[node] = graph.placeholder(f"drawn_{len(self.draws)}")
                made[node].meta["val"] = value[1] if node.target is _DROPOUT else value
        for node in module.graph.nodes:
            if node in made:
                if node.target is _DROPOUT:
                    made[node] = _mask_dropout(graph, node, made[node.args[0]], made[node])
            elif isinstance(made.get(node.args[0] if node.args else None), tuple):
                made[node] = made[node.args[0]][node.args[1]]  # a part of a dropout
            else:
                made[node] = graph.node_copy(node, lambda each: made[each])
        return torch.fx.GraphModule(module, graph)

    def _bind(self, value: Any, position: int) -> None:
        """Record which placeholder and axis give each symbol."""
        parts: Iterator[tuple[int | None, Any]] = iter(())
        if isinstance(value, torch.SymInt):
            parts = iter([(None, value)])
        elif isinstance(value, torch.Tensor):
            parts = iter(enumerate(value.shape))
        for axis, size in parts:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                self.symbols.setdefault(size.node.expr.name, (position, axis))

    def _draw(self, node: torch.fx.Node) -> _Draw | None:
        """The draw of a node; None if its sizes are not those of placeholders."""
        try:
            if node.target is _DROPOUT:
                mask = self._empty(node.meta["val"][1])
                return _Draw(torch.Tensor.bernoulli_, (mask, 1 - node.args[1]), {})
            arguments = tuple(self._argument(each) for each in node.args)
        except Refused:
            return None
        assert callable(node.target)
        return _Draw(node.target, arguments, dict(node.kwargs))

    def _argument(self, given: Any) -> Any:
        if isinstance(given, (list, tuple)):
            return [self._argument(each) for each in given]
        value = given.meta["val"] if isinstance(given, torch.fx.Node) else given
        if isinstance(value, torch.Tensor):
            return self._empty(value)
        return self._size(value) if isinstance(value, torch.SymInt) else value

    def _empty(self, value: torch.Tensor) -> _Empty:
        shape, strides = (
            tuple(self._size(size) for size in sizes) for sizes in (value.shape, value.stride())
        )
        return _Empty(shape, strides, value.dtype)

    def _size(self, size: Any) -> Size | int:
        if not isinstance(size, torch.SymInt):
            return int(size)
        return size_of(size.node.expr, {name: Size.symbol(name) for name in self.symbols})


def _draws(node: torch.fx.Node) -> bool:
    """Whether a node draws numbers that depend on shapes alone."""
    if node.target is _DROPOUT:
        probability, train = node.args[1:3]
        return bool(train) and bool(probability)
    return node.target in DRAWN_BY_SHAPE and node.kwargs.get("generator") is None


def _mask_dropout(
    graph: torch.fx.Graph, node: torch.fx.Node, x: torch.fx.Node, mask: torch.fx.Node
) -> tuple[torch.fx.Node, torch.fx.Node]:
    """The results of a dropout with a drawn mask of kept elements."""
    probability: Any = node.args[1]
    scale = 0.0 if probability == 1 else 1 / (1 - probability)
    kept = graph.call_function(_ATEN.mul.Tensor, (x, mask))
    made = graph.call_function(_ATEN.mul.Tensor, (kept, scale))
    for each in (kept, made):
        each.meta = {**node.meta, "val": node.meta["val"][0]}
    return made, mask


def _bind_argument(value: Any, sizes: Mapping[str, int]) -> Any:
    """Evaluates an argument at sizes; an `_Empty` becomes a function that allocates it."""
    if isinstance(value, list):
        return [_bind_argument(each, sizes) for each in value]
    if isinstance(value, _Empty):
        return value.at(sizes)
    return _number(value, sizes) if isinstance(value, Size) else value


def _number(size: Size | int, sizes: Mapping[str, int]) -> int:
    return size if isinstance(size, int) else size.evaluate(sizes)
