"""torch.compile's backend: `torch.compile(model, backend="anydim", dynamic=True)`.

torch finds it by the entry point `torch_dynamo_backends`. Its graphs, forward and backward, are
functional and of ATen: each becomes one model for all sizes that torch's guards allow. Operators
that are not supported run in torch, and what is before and behind them becomes models of their own
(`frontends/torch/sections`). One line in torch's log says which, and why.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.metadata import entry_points
from typing import Any

import torch
import torch.fx.experimental._config
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import detect_fake_mode
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import _disable_current_modes

from anydim.api.entry import compile
from anydim.base.errors import ModelError, OptionError, UserError
from anydim.base.text import quote_list
from anydim.compiler.frontends.torch.decompositions import decompositions
from anydim.compiler.frontends.torch.drawn_numbers import DrawnNumbers
from anydim.compiler.frontends.torch.graph_results import (
    GraphResults,
    count_returned,
    returns_inputs,
    traced_metadata,
    traced_value,
    without_metadata,
)
from anydim.compiler.frontends.torch.importer import Imported, Program, import_graph
from anydim.compiler.frontends.torch.inference_trace import traced_inference
from anydim.compiler.frontends.torch.opening import torch_precision
from anydim.compiler.frontends.torch.recurrent_tracing import trace_whole
from anydim.compiler.frontends.torch.refusal import UnsupportedNodes
from anydim.compiler.frontends.torch.sections import InSections, sections
from anydim.torch.calls import ModelCall

_LOG = logging.getLogger("torch._dynamo.backends.anydim")
_MOST_BUILDS = 4  # compilations with weights as constants; then weights are inputs
_OPTIONS = ("threads", "options", "precision", "strategy", "target", "memory_limit", "arenas")


def backend(
    module: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Any = None, mode: Any = None
) -> Callable[..., Any]:
    """Compile a graph of torch.compile.

    `options` are those of `anydim.compile`: threads, options, precision, strategy, target,
    memory_limit, arenas. The number of threads is torch's, and so is the precision if none is
    given. `mode` has no meaning here.

    Raises OptionError for an unknown option.
    """
    usual = {"threads": torch.get_num_threads(), "precision": torch_precision()}
    wanted = {**usual, **(options or {})}
    unknown = [name for name in wanted if name not in _OPTIONS]
    if unknown:
        raise OptionError(
            f"torch.compile: the backend has no option {quote_list(unknown)}",
            f"its options are {quote_list(_OPTIONS)}",
        )
    held = {position: tensor for position, tensor in enumerate(inputs) if _is_weight(tensor)}
    with _attention(inputs):
        return _trace(module, inputs, wanted, held)


def _is_weight(value: Any) -> bool:
    """Whether an input is a parameter or a buffer, and torch counts its changes."""
    is_static = getattr(value, "_dynamo_static_input_type", None) is not None
    return (is_static or isinstance(value, torch.nn.Parameter)) and not value.is_inference()


def _attention(inputs: Sequence[Any]) -> Any:
    """Selects how torch traces attention: with gradients, as differentiable operators."""
    recorded = torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in inputs
    )
    return sdpa_kernel(SDPBackend.MATH) if recorded else nullcontext()


def _trace(
    module: torch.fx.GraphModule, inputs: Sequence[Any], wanted: Mapping[str, Any],
    held: Mapping[int, torch.Tensor],
) -> Callable[..., Any]:  # fmt: skip
    table = decompositions(is_exported=False)
    traced = traced_inference(module, inputs, table)
    if traced is not None:
        return _compile_or_none(traced, inputs, wanted, held) or module.forward
    made: Callable[..., Any] = aot_autograd(
        fw_compiler=partial(_compile_graph, wanted, {}),
        bw_compiler=partial(_compile_graph, wanted, {}, is_backward=True),
        inference_compiler=partial(_compile_graph, wanted, held if _is_whole(module) else {}),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=table,
    )(module, inputs)
    return made


def _is_whole(module: torch.fx.GraphModule) -> bool:
    """Whether parameters are inputs of the traced graph: torch then keeps the order of inputs."""
    return not dict(module.named_parameters()) and not dict(module.named_buffers())


def _compile_graph(
    wanted: Mapping[str, Any], held: Mapping[int, torch.Tensor],
    module: torch.fx.GraphModule, inputs: Sequence[Any], *, is_backward: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """Compiles a functional graph; falls back to the graph itself in torch."""
    constant = {n: tensor for n, tensor in held.items() if not _is_written(n)}
    returned = 0 if is_backward else count_returned()  # gradients have no aliases
    return _box_call(_compile_or_none(module, inputs, wanted, constant, returned) or module.forward)


def _compile_or_none(
    module: torch.fx.GraphModule, inputs: Sequence[Any], *options: Any
) -> Callable[..., Any] | None:
    """Compiles a graph; None, with a line in torch's log, if it cannot be compiled."""
    try:
        graph = CompiledGraph(module, inputs, *options)
    except UnsupportedNodes as error:
        found = _compile_sections(module, inputs, error, *options)
        whole = "a graph runs" if found is None else "operators of a graph run"
        _LOG.warning("%s in torch: %s", whole, error.problem)
        return found
    except UserError as error:
        _LOG.warning("a graph runs in torch: %s", error.problem)
        return None
    return _Recompiled(graph) if graph.held else graph.call


def _compile_sections(
    module: torch.fx.GraphModule, inputs: Sequence[Any], error: UnsupportedNodes,
    wanted: Mapping[str, Any], held: Mapping[int, torch.Tensor], returned: int = sys.maxsize,
) -> Callable[..., Any] | None:  # fmt: skip
    """Splits into compiled sections and torch fallbacks; None if none is worth it.

    Also None if results are views of inputs: torch rebuilds these from what the whole graph
    returns.
    """
    found = sections(module, error.nodes) if error.nodes and not returns_inputs() else ()
    if all(each.is_refused for each in found):
        return None
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    constants = {names[place]: tensor for place, tensor in held.items()}
    parts = []
    with without_metadata():
        for each in found:
            run = None
            if not each.is_refused:
                own = {place: constants[node.name] for place, node in enumerate(each.inputs)
                       if node.name in constants}  # fmt: skip
                run = _compile_or_none(each.module, inputs, wanted, own)
            parts.append((each, run or each.module.forward))
    return InSections(module.graph, parts)


def _box_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a call in torch's boxed convention: one list of arguments, which it empties."""

    def boxed(arguments: list[Any]) -> Any:
        given = tuple(arguments)
        arguments.clear()
        return call(*given)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


class CompiledGraph:
    """A functional graph of ATen and its compiled model.

    `held` are the weights that are constants of the model, by position. `returned` is the number of
    results that the caller sees; the others are saved for the backward graph. Raises ModelError.
    """

    def __init__(
        self, module: torch.fx.GraphModule, inputs: Sequence[Any], wanted: Mapping[str, Any],
        held: Mapping[int, torch.Tensor], returned: int = sys.maxsize,
    ) -> None:  # fmt: skip
        self._drawn = DrawnNumbers(module)
        self._module, self._wanted = self._drawn.module, wanted
        mode = detect_fake_mode(inputs)
        environment = None if mode is None else mode.shape_env
        self._ranges = {} if environment is None else environment.var_to_range
        values = [traced_value(node) for node in self._module.graph.nodes]
        for value in values:
            _refuse_unknown(value)
        with _disable_current_modes():  # torch compiles with tensors that have no values
            self._results = GraphResults(self._module.graph, returned)
        self._is_on_host = all(map(_is_on_host, values))
        self.held = held
        self.build()

    def build(self) -> None:
        """Import and compile the graph with the weights in `held`. Raises ModelError."""
        with _disable_current_modes():
            imported = self._import() if self._results.computed else None
            self._made = self._results.with_outputs(imported.results if imported else ())
            self._call: ModelCall | None = None
            if imported is not None and imported.graph.outputs:
                model = compile(imported.graph, **self._wanted)
                self._call = ModelCall(model, imported, self._is_on_host)
            self._positions = list(self.held)
            self._versions = _versions(self.held.values())

    def _import(self) -> Imported:
        """Imports the graph with computed results only: no inputs, views or repeats."""
        *_, output = self._module.graph.nodes
        placeholders = [n.name for n in self._module.graph.nodes if n.op == "placeholder"]
        constants = {placeholders[n]: tensor for n, tensor in self.held.items()}
        (before,) = output.args
        output.args = (tuple(self._results.computed),)
        try:
            return import_graph(
                Program(
                    "torch.compile",
                    self._module,
                    constants,
                    ranges=self._ranges,
                    shaped_numbers=True,
                )
            )
        finally:
            output.args = (before,)

    def is_stale(self, arguments: Sequence[Any]) -> bool:
        """Whether the weights of a call differ from the constants of the model."""
        return _versions([arguments[n] for n in self._positions]) != self._versions

    def recompile(self, held: Mapping[int, torch.Tensor]) -> CompiledGraph:
        """Compiles the same graph with other weights as constants."""
        graph = copy.copy(self)
        graph.held = held
        graph.build()
        return graph

    def call(self, *arguments: Any) -> list[Any]:
        """Runs the model for the arguments of the graph, in order."""
        whole = self._drawn.arguments(arguments)
        outputs = {} if self._call is None else self._call(whole)
        return self._made.make(whole, outputs)


class _Recompiled:
    """Recompiles when weights change; later takes weights as inputs.

    Several threads may call it, with the weights of several modules of the same code.
    """

    def __init__(self, graph: CompiledGraph) -> None:
        self._graph, self._builds, self._lock = graph, 1, threading.Lock()

    def __call__(self, *arguments: Any) -> list[Any]:
        graph = self._graph
        if graph.is_stale(arguments):
            graph = self._recompile(arguments)
        return graph.call(*arguments)

    def _recompile(self, arguments: Sequence[Any]) -> CompiledGraph:
        with self._lock:
            if self._graph.is_stale(arguments):
                self._builds += 1
                is_held = self._builds <= _MOST_BUILDS
                held = {n: arguments[n] for n in self._graph.held} if is_held else {}
                self._graph = self._graph.recompile(held)
            return self._graph


def _refuse_unknown(value: Any) -> None:
    """Raise ModelError for meta and nested tensors."""
    if isinstance(value, torch.Tensor) and value.device.type == "meta":
        raise ModelError("torch.compile: tensors of the device meta have no values")
    if isinstance(value, torch.SymInt) and isinstance(value.node._hint, torch.SymInt):
        raise ModelError("torch.compile: nested tensors are not supported")


def _is_on_host(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or value.device.type == "cpu"


def _versions(tensors: Iterable[torch.Tensor]) -> list[int]:
    """The address and torch's version counter of each tensor."""
    found: list[int] = []
    for tensor in tensors:
        found += (tensor.data_ptr(), tensor._version)
    return found


def _is_written(position: int) -> bool:
    """Whether the traced function changes an input in place."""
    metadata = traced_metadata()
    if metadata is None or position >= len(metadata.input_info):
        return True
    return bool(metadata.input_info[position].mutates_data)


torch.fx.experimental._config.use_duck_shape = False  # sizes equal by accident may differ later
trace_whole()
if not entry_points(group="torch_dynamo_backends", name="anydim"):
    torch._dynamo.register_backend(backend, name="anydim")  # not installed: torch cannot find it
