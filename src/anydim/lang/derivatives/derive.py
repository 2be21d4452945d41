"""`vjp_of`: the vector-Jacobian product of a group, as a definition of the language.

The definition takes the inputs of the group and the cotangents of its float results, and returns
the cotangents of its float inputs. For the product of matrices:

    def matmul_vjp(float(M,K) A, float(K,N) B, float(M,N) dC) -> (dA, dB) {
      dA(m,k) +=! dC(m,n) * B(k,n)
      dB(k,n) +=! dC(m,n) * A(m,k)
    }
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.records import dataclass
from anydim.lang.derivatives.activity import active_tensors, steps_of, tensor_types
from anydim.lang.derivatives.algebra import simplify
from anydim.lang.derivatives.cotangents import Cotangents, copy_tensor
from anydim.lang.derivatives.liveness import needed_steps
from anydim.lang.derivatives.normal import normal_steps
from anydim.lang.derivatives.reverse import Reverse
from anydim.lang.derivatives.step_adjoints import AFTER
from anydim.lang.derivatives.surface import Signature, definition_of
from anydim.lang.resolve.scope import new_name
from anydim.lang.surface.syntax import Definition
from anydim.lang.tree import Cast, Group, OrderedStep, Statement, Tensor, TensorType
from anydim.lang.tree.stepping import with_expressions


@dataclass(frozen=True)
class Vjp:
    """A definition, the results whose cotangents it takes, and the inputs it gives those of."""

    definition: Definition
    results: tuple[str, ...]
    inputs: tuple[str, ...]


def vjp_of(group: Group, name: str, by: Sequence[str] | None = None) -> Vjp:
    """Derive the vector-Jacobian product of a group, by all float inputs or those named in `by`.

    Raises NoStepDerivative for a statement without a derivative.
    """
    types = tensor_types(group)
    taken = set(types)
    steps = normal_steps(steps_of(group), types, taken)
    types.update({tensor + AFTER: kind for tensor, kind in types.items()})
    given = {}
    for tensor in group.outputs:
        if tensor.type.dtype.kind == "float":
            given[tensor.name] = new_name(f"d{_stem(tensor.name)}", taken)
            types[given[tensor.name]] = tensor.type
    wanted = tuple(
        t.name for t in group.inputs
        if t.type.dtype.kind == "float" and (by is None or t.name in by)
    )  # fmt: skip
    results = {t: new_name(f"d{_stem(t)}", taken) for t in wanted}
    made = _steps(group, steps, types, taken, given, results)
    results_kept = tuple(t for t in given)
    signature = Signature(
        f"{name}_vjp",
        (*group.inputs, *(Tensor(given[t], types[given[t]]) for t in results_kept)),
        tuple(results[t] for t in wanted),
        group.guards,
    )
    definition = definition_of(signature, needed_steps(made, signature.results), types)
    return Vjp(definition, results_kept, wanted)


def _stem(name: str) -> str:
    """The name of a tensor as its author wrote it."""
    return name.split(".")[0]


def _steps(
    group: Group, steps: tuple[OrderedStep, ...], types: dict[str, TensorType], taken: set[str],
    given: dict[str, str], results: dict[str, str],
) -> list[OrderedStep]:  # fmt: skip
    """All steps: the forward pass, the backward pass, and the results."""
    active = active_tensors(steps, group, types, results)
    cotangents = Cotangents(
        steps, types, active, {t: name for t, name in given.items() if t in active}, taken
    )
    for tensor, name in results.items():
        if types[tensor].dtype.bits >= 32:
            cotangents.names[tensor] = name
            types[name] = types[tensor]
    forward = frozenset(name for name in types if not name.endswith(AFTER)) - {*given.values()}
    reverse = Reverse(cotangents, forward - set(results.values()))
    ahead, _ = reverse.block(steps, (), ())
    made = list(
        with_expressions((*reverse.beginnings.values(), *ahead, *cotangents.block.steps), simplify)
    )
    for tensor, name in results.items():
        if not cotangents.is_defined(tensor):
            made.append(cotangents.zero(tensor))
        if cotangents.names.get(tensor) != name:
            made.append(_copy_as_type(name, cotangents.name(tensor), types[tensor]))
            types[name] = types[tensor]
    return made


def _copy_as_type(name: str, source: str, kind: TensorType) -> Statement:
    copy = copy_tensor(name, source, kind)
    return copy.with_body(Cast(kind.dtype, copy.body))
