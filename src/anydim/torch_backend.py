"""torch.compile's backend: `torch.compile(model, backend="anydim", dynamic=True)`.

torch finds it by the entry point `torch_dynamo_backends`. Its graphs, forward and backward, are
functional and of ATen: each becomes one model for all sizes that torch's guards allow. A graph
with an operator that is not supported runs in torch, with one line in torch's log that says why.

Random numbers are drawn by torch's default generator. A seed gives the numbers of eager torch,
except `cauchy_` and `geometric_`.

In a graph without gradients, parameters and buffers are constants of the model, which shares their
memory. A change in place that torch counts is noticed at the next call, and the model is compiled
again, as for the parameters of another module with the same code; after some such calls they
become inputs. Writes through `.data` or numpy are not counted. Tensors made in inference mode are
inputs.

The import changes what torch traces, for all backends of the process: recurrent layers stay whole
(`recurrent_tracing`), and sizes that are equal in the first call are not assumed to stay equal.
"""

from __future__ import annotations

import copy
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from typing import Any

import numpy
import torch
import torch.fx.experimental._config
import torch.utils.dlpack
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import detect_fake_mode
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import _disable_current_modes

from anydim.base.dtypes import from_numpy as dtype_from_numpy
from anydim.base.errors import ModelError, OptionError, UserError
from anydim.base.records import dataclass
from anydim.base.text import listed
from anydim.complex_model import complex_tensor
from anydim.entry import compile
from anydim.frontends.torch.decompositions import decompositions
from anydim.frontends.torch.drawn_numbers import DrawnNumbers
from anydim.frontends.torch.importer import Imported, Program, import_graph
from anydim.frontends.torch.inference_trace import traced_inference
from anydim.frontends.torch.memory_order import memory_order
from anydim.frontends.torch.recurrent_tracing import trace_whole
from anydim.frontends.torch.refusal import Refused
from anydim.frontends.torch.result_views import ResultView, result_view, shared_roots
from anydim.model import Model
from anydim.runtime.exchange import handed, strided

_LOG = logging.getLogger("torch._dynamo.backends.anydim")
_NUMBERS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_MOST_BUILDS = 4  # of a graph with its weights as constants
_MOST_BYTES = 1 << 20  # that stand for a number and are allocated
_OPTIONS = ("threads", "options", "precision", "strategy", "target", "memory_limit", "arenas")


def backend(
    module: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Any = None, mode: Any = None
) -> Callable[..., Any]:
    """Compile a graph of torch.compile.

    `options` are those of `anydim.compile`: threads, options, precision, strategy, target,
    memory_limit, arenas. The number of threads is torch's. `mode` has no meaning here.

    Raises OptionError for an unknown option.
    """
    wanted = {"threads": torch.get_num_threads(), **(options or {})}
    unknown = [name for name in wanted if name not in _OPTIONS]
    if unknown:
        raise OptionError(
            f"torch.compile: the backend has no option {listed(unknown)}",
            f"its options are {listed(_OPTIONS)}",
        )
    held = {position: tensor for position, tensor in enumerate(inputs) if _is_weight(tensor)}
    with _attention(inputs):
        return _traced(module, inputs, wanted, held)


def _is_weight(value: Any) -> bool:
    """Whether an input is a parameter or a buffer, and torch counts its changes."""
    is_static = getattr(value, "_dynamo_static_input_type", None) is not None
    return (is_static or isinstance(value, torch.nn.Parameter)) and not value.is_inference()


def _attention(inputs: Sequence[Any]) -> Any:
    """The form of attention that torch traces: with gradients, one of operators that have them."""
    recorded = torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in inputs
    )
    return sdpa_kernel(SDPBackend.MATH) if recorded else nullcontext()


def _traced(
    module: torch.fx.GraphModule, inputs: Sequence[Any], wanted: Mapping[str, Any],
    held: Mapping[int, torch.Tensor],
) -> Callable[..., Any]:  # fmt: skip
    table = decompositions(is_exported=False)
    traced = traced_inference(module, inputs, table)
    if traced is not None:
        return _model(_Part(traced, inputs, wanted, held)) or module.forward
    made: Callable[..., Any] = aot_autograd(
        fw_compiler=partial(_compiled, wanted, {}),
        bw_compiler=partial(_compiled, wanted, {}, is_backward=True),
        inference_compiler=partial(_compiled, wanted, held if _is_whole(module) else {}),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=table,
    )(module, inputs)
    return made


def _is_whole(module: torch.fx.GraphModule) -> bool:
    """Whether the inputs of torch's functional graph are those of the traced one, in order."""
    return not dict(module.named_parameters()) and not dict(module.named_buffers())


def _compiled(
    wanted: Mapping[str, Any], held: Mapping[int, torch.Tensor],
    module: torch.fx.GraphModule, inputs: Sequence[Any], *, is_backward: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """The model of a functional graph; torch's own graph if it cannot be compiled."""
    constant = {n: tensor for n, tensor in held.items() if not _is_written(n)}
    part = _Part(module, inputs, wanted, constant)
    part.returned = 0 if is_backward else _count_returned()  # gradients have no aliases
    return _boxed(_model(part) or module.forward)


def _model(part: _Part) -> Callable[..., Any] | None:
    """The compiled graph; None, with a line in torch's log, if it cannot be compiled."""
    try:
        part.build()
    except UserError as error:
        _LOG.warning("a graph runs in torch: %s", error.problem)
        return None
    return _Renewed(part) if part.held else part.call


def _boxed(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes its arguments as one list, and empties it."""

    def boxed(arguments: list[Any]) -> Any:
        given = tuple(arguments)
        arguments.clear()
        return call(*given)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


@dataclass(frozen=True)
class _Result:
    """A result of a graph: an input by position, an output by name, a view, or a value."""

    position: int | None = None
    name: str | None = None
    value: Any = None
    is_plain: bool = False  # the module returns the value itself
    number: type | None = None  # of a number, which torch takes as Python's
    view: ResultView | None = None
    same: int | None = None  # the place of the same result
    order: tuple[int, ...] = ()  # the axes as they lie in memory, if not in order

    @property
    def is_computed(self) -> bool:
        """Whether the model computes it."""
        is_passed = self.position is not None or self.view is not None or self.same is not None
        return not (is_passed or self.is_plain)


class _Part:
    """A functional graph of ATen and its model."""

    def __init__(
        self, module: torch.fx.GraphModule, inputs: Sequence[Any], wanted: Mapping[str, Any],
        held: Mapping[int, torch.Tensor],
    ) -> None:  # fmt: skip
        self.returned = sys.maxsize  # results whose order in memory is torch's
        self.drawn = DrawnNumbers(module)
        self.module, self.wanted = self.drawn.module, wanted
        nodes = list(self.module.graph.nodes)
        self.placeholders = [node for node in nodes if node.op == "placeholder"]
        self.output = nodes[-1]
        self.held = held
        mode = detect_fake_mode(inputs)
        environment = None if mode is None else mode.shape_env
        self.ranges = {} if environment is None else environment.var_to_range

    def build(self) -> None:
        """Import and compile the graph. Raises ModelError."""
        with _disable_current_modes():  # torch compiles with tensors that have no values
            self._build()

    def _build(self) -> None:
        for value in map(_traced_value, self.module.graph.nodes):
            _refuse_unknown(value)
        kept, self.results = self._results()
        imported = self._imported(kept) if kept else None
        outputs = iter(imported.results if imported else ())
        self.results = [
            _named(next(outputs), each) if each.is_computed else each for each in self.results
        ]  # fmt: skip
        self.model: Model | None = None
        if imported is not None and imported.graph.outputs:
            self.imported = imported
            self.model = compile(imported.graph, **self.wanted)
            self.names = tuple(spec.name for spec in self.model.inputs)
            self.plain = _as_array if self._is_numpy(self.model) else _as_tensor
        self.versions = {n: _version(t) for n, t in self.held.items()}
        self.same = [each.same for each in self.results]
        self.views = [
            (number, each.view) for number, each in enumerate(self.results) if each.view is not None
        ]

    def _is_numpy(self, model: Model) -> bool:
        """Whether numpy can hold all inputs and results: its arrays are passed on faster."""
        values = [node.meta.get("val") for node in self.placeholders]
        on_host = all(v.device.type == "cpu" for v in values if isinstance(v, torch.Tensor))
        specs = (*model.inputs, *model.outputs)
        return on_host and all(spec.dtype.numpy.isbuiltin == 1 for spec in specs)

    def _results(self) -> tuple[list[Any], list[_Result]]:
        """The results that the graph computes, and all results."""
        (returned,) = self.output.args
        self.count = len(returned)
        given = [*returned, *shared_roots(returned[: self.returned])]
        self.places = {node: number for number, node in enumerate(self.placeholders)}
        self.nodes: dict[Any, int] = {}  # the first place of each computed result
        for number, node in enumerate(given):
            if node is not None and not self._is_of_input(number):
                self.nodes.setdefault(node, number)
        kept, results = [], []
        written = self._written(returned)
        for number, each in enumerate(given):
            passed = self._passed(number, given, written)
            if passed is not None:
                results.append(passed)
                continue
            kept.append(each)
            results.append(_Result(number=_NUMBERS.get(type(_traced_value(each)))))
        roots = {each.view.root for each in results if each.view is not None}
        return kept, [
            replace(each, order=_order(node))
            if each.is_computed and (number < self.returned or node in roots) else each
            for number, (node, each) in enumerate(zip(given, results))
        ]  # fmt: skip

    def _passed(
        self, number: int, given: Sequence[Any], written: Mapping[torch.fx.Node, torch.fx.Node]
    ) -> _Result | None:
        """A result that the model does not compute; None if it does."""
        each = given[number]
        if each in self.places:
            return _Result(position=self.places[each])
        if not isinstance(each, torch.fx.Node):
            return _Result(value=each, is_plain=True)
        is_of_input = self._is_of_input(number)
        if is_of_input and each in written:
            return _Result(position=self.places[written[each]])
        view: ResultView | None = None
        try:
            view = result_view(each, self.nodes, written if is_of_input else None)
        except Refused as error:
            if is_of_input:
                raise ModelError(f"a result that is a view of an input, by {error}") from None
        if is_of_input and view is not None:
            return _Result(view=view)
        if self.nodes.get(each, number) < number:
            return _Result(same=self.nodes[each])
        return None if view is None else _Result(view=view)

    def _is_of_input(self, number: int) -> bool:
        """Whether a result is a view of an input.

        torch makes it again from the input after the call, by the sizes, strides and offset that
        the graph returns.
        """
        metadata = _metadata() if number < self.returned else None
        if metadata is None:
            return False
        place = number - len(metadata.mutated_inp_runtime_indices)
        if not 0 <= place < len(metadata.output_info):
            return False
        return metadata.output_info[place].output_type.name in ("alias_of_input", "is_input")

    def _written(self, returned: Sequence[Any]) -> dict[torch.fx.Node, torch.fx.Node]:
        """The placeholders that a call writes, by their new values, the first results."""
        metadata = _metadata() if self.returned else None
        if metadata is None or metadata.tokens:
            return {}
        positions = metadata.mutated_inp_runtime_indices
        pairs = [(new, self.placeholders[n]) for new, n in zip(returned, positions)
                 if n < len(self.placeholders)]  # fmt: skip
        if len(pairs) < len(positions) or not all(_have_one_shape(*pair) for pair in pairs):
            return {}  # torch has joined inputs that share memory
        return {new: old for new, old in pairs if new not in self.places}

    def _imported(self, kept: Sequence[Any]) -> Imported:
        (before,) = self.output.args
        self.output.args = (tuple(kept),)
        constants = {self.placeholders[n].name: tensor for n, tensor in self.held.items()}
        try:
            return import_graph(
                Program(
                    "torch.compile",
                    self.module,
                    constants,
                    ranges=self.ranges,
                    shaped_numbers=True,
                )
            )
        finally:
            self.output.args = (before,)

    def is_stale(self, arguments: Sequence[Any]) -> bool:
        """Whether weights among the arguments are not those that the model holds."""
        return any(_version(arguments[n]) != found for n, found in self.versions.items())

    def renewed(self, held: Mapping[int, torch.Tensor]) -> _Part:
        """The same graph compiled with other weights."""
        part = copy.copy(self)
        part.held = held
        part.build()
        return part

    def call(self, *arguments: Any) -> list[Any]:
        """The results for arguments in order."""
        found: Mapping[str, Any] = {}
        whole = self.drawn.arguments(arguments)
        if self.model is not None:
            found = self.model(**self._given(whole))
        made = [self._result(each, whole, found) for each in self.results]
        for number, each in self.views:
            made[number] = self._view(each, whole, made)
        shown = zip(made[: self.count], self.same)
        return [each if same is None else made[same] for each, same in shown]

    def _given(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """The inputs of the model."""
        given = {name: arguments[position]
                 for name, position in zip(self.names, self.imported.placeholders)}  # fmt: skip
        for name in self.imported.complex_names & given.keys():
            given[name] = torch.view_as_real(given[name].resolve_conj())
        for name in self.imported.negated:
            given[name] = -given[name]
        return {name: self.plain(value) for name, value in given.items()}

    def _view(
        self, view: ResultView, arguments: Sequence[Any], made: Sequence[Any]
    ) -> torch.Tensor:
        place = self.places.get(view.root)
        root = made[self.nodes[view.root]] if place is None else arguments[place]
        return view.made(root, [arguments[self.places[each]] for each in view.others])

    def _result(self, each: _Result, arguments: Sequence[Any], found: Mapping[str, Any]) -> Any:
        if each.position is not None:
            return arguments[each.position]
        if each.name is None:
            return each.value
        made = found[each.name]
        if each.number is not None:
            return each.number(made)
        tensor = made if isinstance(made, torch.Tensor) else _tensor_of(made)
        if each.name in self.imported.complex_names:
            tensor = complex_tensor(tensor)
        return _in_order(tensor, each.order) if each.order else tensor


class _Renewed:
    """A compiled graph that holds weights: compiled again for others, at last with none.

    Several threads may call it, with the weights of several modules of the same code.
    """

    def __init__(self, part: _Part) -> None:
        self._part, self._builds, self._lock = part, 1, threading.Lock()

    def __call__(self, *arguments: Any) -> list[Any]:
        part = self._part
        if part.is_stale(arguments):
            part = self._renewed(arguments)
        return part.call(*arguments)

    def _renewed(self, arguments: Sequence[Any]) -> _Part:
        with self._lock:
            if self._part.is_stale(arguments):
                self._builds += 1
                is_held = self._builds <= _MOST_BUILDS
                held = {n: arguments[n] for n in self._part.held} if is_held else {}
                self._part = self._part.renewed(held)
            return self._part


def _tensor_of(array: numpy.ndarray) -> torch.Tensor:
    """A tensor that shares an array's memory, of types that numpy does not know, too."""
    array = strided(array)
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_dlpack(handed(array, dtype_from_numpy(array.dtype)))


def _named(result: Any, computed: _Result) -> _Result:
    if isinstance(result, str):
        return replace(computed, name=result)
    return _Result(value=result)


def _metadata() -> Any:
    """What torch knows of the inputs and results of the traced function; None if nothing."""
    return getattr(torch._guards.TracingContext.try_get(), "fw_metadata", None)


def _have_one_shape(one: Any, other: Any) -> bool:
    values = _traced_value(one), _traced_value(other)
    shapes = [[str(size) for size in getattr(each, "shape", "?")] for each in values]
    return shapes[0] == shapes[1]


def _traced_value(result: Any) -> Any:
    return result.meta.get("val") if isinstance(result, torch.fx.Node) else None


def _refuse_unknown(value: Any) -> None:
    """Raise ModelError for a traced value that no model computes."""
    if isinstance(value, torch.Tensor) and value.device.type == "meta":
        raise ModelError("torch.compile: tensors of the device meta have no values")
    if isinstance(value, torch.SymInt) and isinstance(value.node._hint, torch.SymInt):
        raise ModelError("torch.compile: nested tensors are not supported")


def _order(result: Any) -> tuple[int, ...]:
    """The axes of a result from the outermost in memory to the innermost; none if in order."""
    traced = _traced_value(result)
    if not isinstance(traced, torch.Tensor):
        return ()
    try:
        order = memory_order(traced)
    except Refused:
        return ()
    return () if order == tuple(range(len(order))) else order


def _in_order(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """A tensor with its axes in another order in memory."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(order).contiguous().permute(back)


def _count_returned() -> int:
    """The number of results of a forward graph that the caller sees; the others are saved."""
    metadata = _metadata()
    return sys.maxsize if metadata is None else int(metadata.num_forward)


def _as_tensor(value: Any) -> torch.Tensor:
    """An argument of a model: a number is the size of a tensor of bytes."""
    if isinstance(value, int):
        return torch.from_numpy(_bytes(value))
    return value.detach()


def _as_array(value: Any) -> numpy.ndarray:
    """The same as an array that shares the tensor's memory, which may still be resized."""
    if isinstance(value, int):
        return _bytes(value)
    return numpy.from_dlpack(_Shared(value.resolve_neg() if value.is_neg() else value))


class _Shared:
    """A tensor as a DLPack array, gradients or not."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return torch.utils.dlpack.to_dlpack(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def _bytes(count: int) -> numpy.ndarray:
    """An array of that many bytes, whose elements are not read; none for a negative count."""
    if count <= _MOST_BYTES:
        return numpy.empty(max(count, 0), numpy.uint8)
    return numpy.lib.stride_tricks.as_strided(numpy.empty(1, numpy.uint8), (count,), (1,))


def _version(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor lies, and how often it was changed."""
    return tensor.data_ptr(), tensor._version


def _is_written(position: int) -> bool:
    """Whether the traced function changes an input in place."""
    metadata = _metadata()
    if metadata is None or position >= len(metadata.input_info):
        return True
    return bool(metadata.input_info[position].mutates_data)


torch.fx.experimental._config.use_duck_shape = False  # sizes equal by accident may differ later
trace_whole()
if not entry_points(group="torch_dynamo_backends", name="anydim"):
    torch._dynamo.register_backend(backend, name="anydim")  # not installed: torch cannot find it
