"""Results of a functional graph of torch.compile: computed by the model, or rebuilt by torch.

A result that is an input, a view of an input or of another result, or the same as another result
is no output of the model: torch expects that they share memory as in eager torch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from anydim.base.errors import ModelError
from anydim.base.records import dataclass
from anydim.compiler.frontends.torch.memory_order import Gaps, memory_gaps, memory_order
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.compiler.frontends.torch.result_views import (
    ResultView,
    is_hidden_view,
    result_view,
    shared_roots,
)
from anydim.runtime.program.adapter import NamedResult

_OF_INPUT = ("alias_of_input", "is_input")  # types of results in torch
_NUMBERS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


@dataclass(frozen=True)
class PassedInput:
    """A result that is an input."""

    position: int

    def make(self, arguments: Sequence[Any], outputs: Mapping[str, torch.Tensor]) -> Any:
        return arguments[self.position]


@dataclass(frozen=True)
class Constant:
    """A result that is the same in all calls."""

    value: Any

    def make(self, arguments: Sequence[Any], outputs: Mapping[str, torch.Tensor]) -> Any:
        return self.value


@dataclass(frozen=True)
class Computed:
    """A result that is an output of the model."""

    number: type | None  # int, float or bool, if torch expects a Python number
    order: tuple[int, ...] = ()  # axes from the outermost in memory, if permuted
    gaps: Gaps | None = None
    name: str = ""

    def make(self, arguments: Sequence[Any], outputs: Mapping[str, torch.Tensor]) -> Any:
        tensor = outputs[self.name]
        if self.number is not None:
            return self.number(tensor)
        if self.gaps is not None:
            return self.gaps.lay_out(tensor, arguments)
        return _in_order(tensor, self.order) if self.order else tensor


@dataclass(frozen=True)
class View:
    """A result that is a view of an input or of another result, made after its root."""

    view: ResultView

    def make(self, arguments: Sequence[Any], outputs: Mapping[str, torch.Tensor]) -> Any:
        return None


@dataclass(frozen=True)
class Same:
    """A result that repeats an earlier one."""

    place: int

    def make(self, arguments: Sequence[Any], outputs: Mapping[str, torch.Tensor]) -> Any:
        return None


Result = PassedInput | Constant | Computed | View | Same


class GraphResults:
    """Classifies the results of a graph; `computed` are the nodes that become model outputs.

    `returned` is the number of results whose memory the caller sees. Raises ModelError for a view
    that torch cannot make.
    """

    def __init__(self, graph: torch.fx.Graph, returned: int) -> None:
        nodes = list(graph.nodes)
        (results,) = nodes[-1].args
        self._returned, self._count = returned, len(results)
        self._placeholders = [node for node in nodes if node.op == "placeholder"]
        self._positions = {node: number for number, node in enumerate(self._placeholders)}
        given = [*results, *shared_roots(results[:returned])]
        self._places: dict[Any, int] = {}  # the first place of each computed result
        for place, node in enumerate(given):
            if node is not None and not self._is_of_input(place):
                self._places.setdefault(node, place)
        written = self._written_placeholders(results)
        found = [self._result(place, node, written) for place, node in enumerate(given)]
        roots = {each.view.root for each in found if isinstance(each, View)}
        for place, (node, each) in enumerate(zip(given, found)):
            if isinstance(each, Computed) and (place < returned or node in roots):
                order, gaps = _layout(node)
                found[place] = replace(each, order=order, gaps=gaps)
        self._results: Sequence[Result] = found
        self.computed = [node for node, each in zip(given, found) if isinstance(each, Computed)]

    def with_outputs(self, outputs: Sequence[Any]) -> ResultMaker:
        """Binds computed results to the names, or constant values, of the model's outputs."""
        names = iter(outputs)
        found = [
            _with_output(each, next(names)) if isinstance(each, Computed) else each
            for each in self._results
        ]  # fmt: skip
        return ResultMaker(found, self._count, self._positions, self._places)

    def _result(
        self, place: int, node: Any, written: Mapping[torch.fx.Node, torch.fx.Node]
    ) -> Result:
        if node in self._positions:
            return PassedInput(self._positions[node])
        if not isinstance(node, torch.fx.Node):
            return Constant(node)
        is_of_input = self._is_of_input(place)
        if is_of_input and node in written:
            return PassedInput(self._positions[written[node]])
        view: ResultView | None = None
        try:
            view = result_view(node, self._places, written if is_of_input else None)
        except Refused as error:
            if is_of_input:
                raise ModelError(f"a result that is a view of an input, by {error}") from None
        if is_of_input and view is not None:
            return View(view)
        if self._places.get(node, place) < place:
            return Same(self._places[node])
        return Computed(_NUMBERS.get(type(traced_value(node)))) if view is None else View(view)

    def _is_of_input(self, place: int) -> bool:
        """Whether a result is a view of an input.

        torch makes it again from the input after the call, by the sizes, strides and offset that
        the graph returns.
        """
        metadata = traced_metadata() if place < self._returned else None
        if metadata is None:
            return False
        output = place - len(metadata.mutated_inp_runtime_indices)
        if not 0 <= output < len(metadata.output_info):
            return False
        return metadata.output_info[output].output_type.name in _OF_INPUT

    def _written_placeholders(self, results: Sequence[Any]) -> dict[torch.fx.Node, torch.fx.Node]:
        """The placeholders that a call writes, by their new values, the first results."""
        metadata = traced_metadata() if self._returned else None
        if metadata is None or metadata.tokens:
            return {}
        positions = metadata.mutated_inp_runtime_indices
        pairs = [(new, self._placeholders[n]) for new, n in zip(results, positions)
                 if n < len(self._placeholders)]  # fmt: skip
        if len(pairs) < len(positions) or not all(_have_one_shape(*pair) for pair in pairs):
            return {}  # torch has join_parts inputs that share memory
        return {new: old for new, old in pairs if new not in self._positions}


class ResultMaker:
    """Makes the results of a call; the first `count` are returned, the others are roots of views.

    `positions` are those of placeholders among the arguments, `places` those of results.
    """

    def __init__(
        self, results: Sequence[Result], count: int, positions: Mapping[torch.fx.Node, int],
        places: Mapping[torch.fx.Node, int],
    ) -> None:  # fmt: skip
        self._results, self._count = results, count
        self._positions, self._places = positions, places
        self._views = [(n, each.view) for n, each in enumerate(results) if isinstance(each, View)]
        self._same = [(n, each.place) for n, each in enumerate(results) if isinstance(each, Same)]

    def make(self, arguments: Sequence[Any], outputs: Mapping[str, torch.Tensor]) -> list[Any]:
        """The results for the arguments of a call and the outputs of the model."""
        made = [each.make(arguments, outputs) for each in self._results]
        for place, view in self._views:
            position = self._positions.get(view.root)
            root = made[self._places[view.root]] if position is None else arguments[position]
            made[place] = view.make(root, [arguments[self._positions[n]] for n in view.others])
        for place, other in self._same:
            made[place] = made[other]
        return made[: self._count]


def traced_metadata() -> Any:
    """AOTAutograd's metadata of the traced function (aliases, mutations); None outside of it."""
    return getattr(torch._guards.TracingContext.try_get(), "fw_metadata", None)


@contextmanager
def without_metadata() -> Iterator[None]:
    """Hide the metadata while a section of the traced function is compiled."""
    context = torch._guards.TracingContext.try_get()
    metadata = traced_metadata()
    if context is not None:
        context.fw_metadata = None
    try:
        yield
    finally:
        if context is not None:
            context.fw_metadata = metadata


def returns_inputs() -> bool:
    """Whether a result of the traced function is an input or a view of one."""
    metadata = traced_metadata()
    return metadata is not None and any(
        each.output_type.name in _OF_INPUT for each in metadata.output_info
    )


def count_returned() -> int:
    """The number of results of a forward graph that the caller sees; the others are saved."""
    metadata = traced_metadata()
    return sys.maxsize if metadata is None else int(metadata.num_forward)


def traced_value(node: Any) -> Any:
    """The fake value of a node (`meta["val"]`); None for anything else."""
    return node.meta.get("val") if isinstance(node, torch.fx.Node) else None


def _with_output(computed: Computed, output: Any) -> Result:
    return (
        replace(computed, name=output.name) if isinstance(output, NamedResult) else Constant(output)
    )


def _have_one_shape(one: Any, other: Any) -> bool:
    values = traced_value(one), traced_value(other)
    shapes = [[str(size) for size in getattr(each, "shape", "?")] for each in values]
    return shapes[0] == shapes[1]


def _layout(node: torch.fx.Node) -> tuple[tuple[int, ...], Gaps | None]:
    """(axes from the outermost in memory, () if contiguous; gaps between elements, if any).

    Views of values that the caller never sees are made contiguous.
    """
    traced = traced_value(node)
    if not isinstance(traced, torch.Tensor):
        return (), None
    try:
        order = memory_order(traced)
    except Refused:
        return (), _gaps(node)
    return () if order == tuple(range(len(order))) else order, None


def _gaps(node: torch.fx.Node) -> Gaps | None:
    if is_hidden_view(node):
        return None
    try:
        return memory_gaps(node)
    except Refused:
        return None


def _in_order(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Copies a tensor so that its axes lie in this order in memory."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(order).contiguous().permute(back)
