"""Definitions as operators of torch: in torch.compile, torch.export and vmap, with gradients.

`operator_name` registers a definition in the namespace `anydim` of torch.ops, once for its
attributes. Its fake implementation evaluates the sizes of the results, its gradient is the
definition's `vjp`, and under vmap it is the definition with one more axis.

Only code that has a tensor of torch imports this module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from anydim.base.dtypes import DTYPES
from anydim.base.frozen import FrozenMapping, freeze_value
from anydim.compiler.frontends.definition import kinds_of
from anydim.compiler.frontends.definition_graph import graph_of
from anydim.compiler.frontends.torch.called_definitions import DEFINITIONS
from anydim.compiler.graph.nodes import Graph
from anydim.lang.surface.printer import print_definition
from anydim.sizes import Guard, Size

_NAMESPACE = "anydim"
_REGISTERED: dict[str, _Operator] = {}


def operator_name(function: Any, attributes: Mapping[str, Any]) -> str:
    """The name in torch.ops.anydim of a definition with these attributes; registers it."""
    definition = function.definition
    frozen = FrozenMapping({name: freeze_value(value) for name, value in attributes.items()})
    source = (print_definition(definition), *map(print_definition, definition.callees))
    settings = (sorted(frozen.items()), function._fixed, function._options)
    digest = hashlib.sha256(repr((source, settings)).encode()).hexdigest()[:12]
    name = f"{definition.name}_{digest}"
    if name not in _REGISTERED:
        _REGISTERED[name] = _Operator(function, frozen, name)
        DEFINITIONS[name] = definition, frozen
    return name


def for_call(name: str, tensors: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """The callable of a registered operator for such arguments.

    Transforms such as torch.func.grad take autograd functions, and no operators with gradients.
    """
    registered = _REGISTERED[name]
    if any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors):
        return registered.transformed
    return getattr(getattr(torch.ops, _NAMESPACE), name)


def is_plain(values: Sequence[Any]) -> bool:
    """Whether a call bypasses torch: no gradients, no transforms, no tracing."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    recording = torch.is_grad_enabled()
    for value in values:
        if isinstance(value, torch.Tensor):
            if type(value) not in (torch.Tensor, torch.nn.Parameter):
                return False
            if recording and value.requires_grad:
                return False
            if torch._C._functorch.is_functorch_wrapped_tensor(value):
                return False
    return True


class _Operator:
    """A definition with attributes, as an operator of torch."""

    def __init__(self, function: Any, attributes: FrozenMapping[str, Any], name: str) -> None:
        self.function = function
        self.definition = function.definition
        self.attributes = attributes
        self.count = len(self.definition.results)
        self.transformed = _autograd_function(self, self.register(name)).apply

    def register(self, name: str) -> Any:
        """Register under a name; returns torch's operator."""
        arguments = ", ".join(f"Tensor a{n}" for n in range(len(self.definition.parameters)))
        results = ", ".join(["Tensor"] * self.count)
        operator = torch.library.custom_op(
            f"{_NAMESPACE}::{name}",
            self.run,
            mutates_args=(),
            schema=f"({arguments}) -> {results if self.count == 1 else f'({results})'}",
        )
        operator.register_fake(self.fake)
        operator.register_autograd(self.backward, setup_context=self.setup)
        operator.register_vmap(self.run_batch)
        return operator

    def one_or_all(self, results: Sequence[Any]) -> Any:
        """One result alone, or a tuple, as the schema declares."""
        return results[0] if self.count == 1 else tuple(results)

    def run(self, *tensors: torch.Tensor) -> Any:
        """Compute the results."""
        given = [tensor.detach() for tensor in tensors]
        made = self.function._on_arrays(given, self.attributes, None, None)
        return self.one_or_all(made if self.count > 1 else (made,))

    # ---- sizes ---------------------------------------------------------------------------------

    def fake(self, *tensors: torch.Tensor) -> Any:
        """Fake results: the sizes and types that the definition gives them."""
        graph = self.graph(tensors)
        sizes = _bind_dims(graph, tensors)
        kinds = [graph.types[name] for name in graph.outputs]
        return self.one_or_all([
            torch.empty(
                [_value(size, sizes) for size in kind.shape],
                dtype=getattr(torch, kind.dtype.name), device=tensors[0].device,
            )
            for kind in kinds
        ])  # fmt: skip

    def graph(self, tensors: Sequence[torch.Tensor]) -> Graph:
        """The graph of the definition for arguments of these types and ranks."""
        pattern = kinds_of(self.definition, [_like(t) for t in tensors], self.attributes)
        return graph_of(self.definition, pattern, self.attributes, self.function._fixed)

    # ---- gradients -----------------------------------------------------------------------------

    def setup(self, ctx: Any, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        """Save the inputs for the derivative, which recomputes intermediate values."""
        ctx.save_for_backward(*inputs)

    def backward(self, ctx: Any, *cotangents: torch.Tensor) -> Any:
        """The gradients, by the operator of the derivative."""
        inputs = ctx.saved_tensors
        names = [parameter.name for parameter in self.definition.parameters]
        wanted = [
            name for name, tensor, needed in zip(names, inputs, ctx.needs_input_grad)
            if needed and tensor.is_floating_point()
        ]  # fmt: skip
        if not wanted:
            return (None,) * len(names) if len(names) > 1 else None
        vjp, function = self.function.vjp.derive(
            [_like(tensor) for tensor in inputs], self.attributes, tuple(wanted)
        )
        given = [c for c in cotangents if c is not None and c.is_floating_point()]
        made = _call_operator(function, {}, [*inputs, *given])
        by_name = dict(zip(vjp.inputs, made))
        found = tuple(by_name.get(name) for name in names)
        return found if len(found) > 1 else found[0]

    # ---- vmap ----------------------------------------------------------------------------------

    def run_batch(self, info: Any, in_dims: tuple[int | None, ...], *tensors: torch.Tensor) -> Any:
        """The results for a batch of arguments, with the batch in front."""
        front = [t if d is None else t.movedim(d, 0) for t, d in zip(tensors, in_dims)]
        rows = [_rows(t, d is not None, info.batch_size) for t, d in zip(front, in_dims)]
        made = [_call_operator(self.function, self.attributes, row) for row in zip(*rows)]
        if not made:
            empty = self.fake(*[t if d is None else _first(t) for t, d in zip(front, in_dims)])
            results = [t.new_empty((0, *t.shape)) for t in (empty if self.count > 1 else (empty,))]
        else:
            results = [torch.stack(parts) for parts in zip(*made)]
        return self.one_or_all(results), self.one_or_all([0] * self.count)


def _autograd_function(operator: _Operator, registered: Any) -> Any:
    """Wraps an operator as an autograd function with setup_context and vmap for torch.func."""

    def vmap(info: Any, in_dims: Any, *tensors: Any) -> Any:
        return operator.run_batch(info, in_dims, *tensors)

    rules = {
        "forward": staticmethod(lambda *tensors: registered(*tensors)),
        "setup_context": staticmethod(operator.setup),
        "backward": staticmethod(operator.backward),
        "vmap": staticmethod(vmap),
    }
    return type(operator.definition.name, (torch.autograd.Function,), rules)


def _rows(tensor: torch.Tensor, is_batched: bool, count: int) -> Sequence[torch.Tensor]:
    return tensor.unbind(0) if is_batched else (tensor,) * count


def _first(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_empty(tensor.shape[1:])


def _call_operator(
    function: Any, attributes: Mapping[str, Any], tensors: Sequence[Any]
) -> tuple[Any, ...]:
    """Calls the torch operator of a definition; always returns a tuple."""
    made = for_call(operator_name(function, attributes), tensors)(*tensors)
    return (made,) if len(function.definition.results) == 1 else tuple(made)


def _like(tensor: torch.Tensor) -> numpy.ndarray:
    """A stand-in array: the tensor's type and rank; sizes 1 stay 1, others are 2."""
    dtype = DTYPES[str(tensor.dtype).removeprefix("torch.")].numpy
    sizes = [1 if guard_or_false(size == 1) else 2 for size in tensor.shape]
    return numpy.broadcast_to(numpy.zeros((), dtype), sizes)


def _bind_dims(graph: Graph, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Binds the dims of the graph to sizes of tensors; torch._check compares the rest."""
    found: dict[str, Any] = {}
    rest: list[tuple[Size, Any]] = []
    for name, tensor in zip(graph.inputs, tensors):
        for size, value in zip(graph.types[name].shape, tensor.shape):
            atom = size.atom
            if isinstance(atom, str) and atom not in found:
                found[atom] = value
            else:
                rest.append((size, value))
    for size, value in rest:
        torch._check(_value(size, found) == value, _message(graph, size, value))
    for guard in graph.guards:
        _check(guard, found)
    return found


def _message(graph: Graph, size: Size, value: Any) -> Callable[[], str]:
    return lambda: f"{graph.name}: a size is {value}, expected {size}"


def _check(guard: Guard, sizes: Mapping[str, Any]) -> None:
    left, right = _value(guard.left, sizes), _value(guard.right, sizes)
    holds = {
        "==": lambda: left == right, "!=": lambda: left != right,
        "<=": lambda: left <= right, "<": lambda: left < right,
    }  # fmt: skip
    torch._check(holds[guard.relation](), lambda: guard.message)


def _apply(function: str, parts: tuple[Any, ...]) -> Any:
    left, right = parts
    return _FUNCTIONS[function](left, right)


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": torch.sym_max,
    "min": torch.sym_min,
}


def _value(size: Size, sizes: Mapping[str, Any]) -> Any:
    """The value of a size, which may be a symbol of torch."""
    return size.fold(lambda number: number, lambda name: sizes[name], _apply)
