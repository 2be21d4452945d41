"""The functional graph of ATen of a graph of torch.compile without gradients, in one trace.

torch's ahead-of-time autograd runs such a graph twice, through tensors that record writes and
views: once for what it changes and returns, once for the graph. A graph that writes nothing and
whose results share no memory needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx.traceback
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.utils import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx, maybe_disable_thunkify

_NATIVE_BATCH_NORM = torch.ops.aten.native_batch_norm.default  # may write to inputs by its kernel
_MODES = {torch._C._set_grad_enabled, torch.autograd.grad_mode.inference_mode}


def traced_inference(
    module: torch.fx.GraphModule, inputs: Sequence[Any],
    decompositions: Mapping[Any, Callable[..., Any]],
) -> torch.fx.GraphModule | None:  # fmt: skip
    """Traces a graph once to functional ATen, without AOTAutograd.

    None if AOTAutograd has to trace it: for gradients, writes, results that share memory with an
    input or another result, nested graphs, sizes that data decide, or inputs of other kinds.
    """
    mode = detect_fake_mode(inputs)
    has_gradients = torch.is_grad_enabled() and any(map(_requires_gradient, inputs))
    are_plain = all(map(_is_plain, inputs)) and all(map(_is_simple, module.graph.nodes))
    if mode is None or has_gradients or not are_plain:
        return None
    results: Sequence[Any] = ()

    def run(*arguments: Any) -> Sequence[Any]:
        nonlocal results
        with torch.fx.traceback.preserve_node_meta(), maybe_disable_thunkify():
            results = torch.fx.Interpreter(module).run(*arguments)
        return results

    with mode, enable_python_dispatcher():
        own = [_traced_value(mode, each) for each in inputs]
        traced = make_fx(run, dict(decompositions))(*own)
    if not (_are_separate(own, results) and all(map(_is_functional, traced.graph.nodes))):
        return None
    traced.graph.eliminate_dead_code()
    return traced


def _is_plain(value: Any) -> bool:
    if isinstance(value, torch.SymInt):
        return True
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided


def _traced_value(mode: FakeTensorMode, value: Any) -> Any:
    """A size, or a tensor without values with the sizes that dynamo has traced."""
    if not isinstance(value, torch.Tensor):
        return value
    context = torch._guards.TracingContext.get().tensor_to_context.get(value)
    source = None if context is None else context.tensor_source
    return mode.from_tensor(value, symbolic_context=context, source=source, trace=context is None)


def _requires_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_simple(node: torch.fx.Node) -> bool:
    """Whether a node calls a function on values, and is not known to write to them."""
    if node.op in ("placeholder", "output"):
        return True
    if node.op not in ("call_function", "call_method") or node.meta.get("unbacked_bindings"):
        return False
    if isinstance(node.meta.get("example_value"), torch.SymFloat):
        return False  # torch makes a number of Python a constant, in another trace
    if isinstance(node.target, torch._ops.HigherOrderOperator) or node.target in _MODES:
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    is_written = (name.endswith("_") and not name.endswith("__")) or name == "setitem"
    return not (is_written or node.kwargs.get("inplace") or node.kwargs.get("out") is not None)


def _is_functional(node: torch.fx.Node) -> bool:
    """Whether a traced node writes to none of its arguments."""
    if node.target is _NATIVE_BATCH_NORM:
        return not node.args[5]
    return not (isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable)


def _are_separate(inputs: Sequence[Any], results: Sequence[Any]) -> bool:
    """Whether results are dense, and share no memory with an input or another result."""
    tensors = [each for each in results if isinstance(each, torch.Tensor)]
    if any(each.layout is not torch.strided for each in tensors):
        return False
    known = {_memory(each) for each in inputs if isinstance(each, torch.Tensor)}
    made = {_memory(each) for each in tensors}
    return len(made) == len(tensors) and not made & known


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
