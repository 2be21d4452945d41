"""Compares a compiled function with eager torch, call by call.

Results have eager's values, types, shapes, strides, and share memory with the inputs and results
that eager's share it with; inputs hold what eager's hold afterwards; gradients are equal; a call
that fails in eager torch fails.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

import anydim.torch.backend  # noqa: F401  registers the backend
from tests.torch.functions.function import Applied, Function, Given, Point, given

_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.1}
_WIDE = dict.fromkeys((torch.float32, torch.bfloat16), torch.float64)
_WIDE[torch.complex64] = torch.complex128
_MANY_TIMES = 8  # eager's distance from float64


@dataclass(frozen=True)
class Failure:
    """How a call differs: the kind, and what was found."""

    kind: str
    reason: str

    @property
    def family(self) -> str:
        """What stays the same while a function shrinks."""
        return self.kind

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


@dataclass(frozen=True)
class Called:
    """What a call gave and left behind, or the error that it raised."""

    given: Given
    results: tuple[Any, ...] = ()
    gradients: tuple[torch.Tensor | None, ...] = ()
    state: tuple[torch.Tensor, ...] = ()  # of the modules and of torch's generator, afterwards
    holder: Any = None  # of the results
    error: Exception | None = None


def judge(function: Function, backend: Any = "anydim") -> Failure | None:
    """The first difference from eager torch; None where torch's own tracing has one too."""
    found = _difference(function, backend)
    if found is None or backend != "anydim":
        return found
    if found.kind != "refused" and _difference(function, "aot_eager") is not None:
        return None
    return found


def _difference(function: Function, backend: Any) -> Failure | None:
    torch._dynamo.reset()
    made, other = Applied(function), Applied(function)
    dynamic = True if function.is_dynamic else None
    is_module = bool(list(other.parameters()))
    compiled = torch.compile(other if is_module else other.call, backend=backend, dynamic=dynamic)

    def call(*given: Any) -> Any:
        count = other.count
        return compiled(*(given if is_module else (*function.held(given[:count]), *given[count:])))

    whole = torch._dynamo.config.patch(
        capture_dynamic_output_shape_ops=function.is_whole, capture_scalar_outputs=function.is_whole
    )
    with warnings.catch_warnings(), _no_logs(), whole:
        warnings.simplefilter("ignore")
        for point in function.points:
            found = _at(function, point, made, (other, call))
            if found is not None:
                return replace(found, reason=f"at {dict(point)}: {found.reason}")
    return None


def refusals(function: Function) -> list[str]:
    """Why graphs of the function ran in torch."""
    found: list[str] = []
    logger, handler = logging.getLogger("torch._dynamo.backends.anydim"), logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        _difference(function, "anydim")
    finally:
        logger.removeHandler(handler)
    return found


class _no_logs:
    """No lines of torch's log on the terminal; handlers of a logger get them."""

    def __enter__(self) -> None:
        self.before = logging.lastResort
        self.level = logging.getLogger("torch").handlers
        logging.getLogger("torch").handlers = []
        logging.lastResort = None

    def __exit__(self, *_: object) -> None:
        logging.getLogger("torch").handlers = self.level
        logging.lastResort = self.before


def _at(
    function: Function, point: Point, made: Applied, compiled: tuple[Applied, Callable[..., Any]]
) -> Failure | None:
    wanted = _called(function, point, made, made)
    found = _called(function, point, *compiled)
    if wanted.error is not None or found.error is not None:
        return _errors(function, point, wanted, found)
    return _first((
        *_compared(function, point, wanted, found),
        *_memory(wanted, found),
        *_writes(wanted, found),
    ))  # fmt: skip


def _first(found: Sequence[Failure | None]) -> Failure | None:
    return next((each for each in found if each is not None), None)


def _called(function: Function, point: Point, module: Applied, call: Callable[..., Any]) -> Called:
    """A call of a module, by `call`."""
    inputs = module.given(given(function, point))
    numbers = [point[name] for name in function.numbers]
    try:
        torch.manual_seed(point["n"])
        made, holder = tree_flatten(call(*inputs.tensors[: module.count], *numbers))
        results = tuple(each for each in made if each is not None)
        leaves = (*inputs.leaves, *module.net_parameters())
        gradients = _gradients(function, leaves, results)
        state = (*(each.clone() for each in module.net_state()), torch.get_rng_state())
        return Called(inputs, results, gradients, state, holder)
    except Exception as error:
        return Called(inputs, error=error)


def _eager(function: Function, point: Point) -> Called:
    module = Applied(function)
    return _called(function, point, module, module)


def _gradients(
    function: Function, leaves: Sequence[torch.Tensor], results: Sequence[Any]
) -> tuple[torch.Tensor | None, ...]:
    """Of a weighted sum of all results."""
    if not function.is_recorded:
        return ()
    recorded = [
        torch.view_as_real(result) if result.is_complex() else result
        for result in results
        if isinstance(result, torch.Tensor) and result.requires_grad
    ]
    losses = [
        (result * torch.cos(torch.arange(result.numel())).view(result.shape)).sum()
        for result in recorded
    ]
    if losses:
        torch.stack([loss.double() for loss in losses]).sum().backward()
    return tuple(leaf.grad for leaf in leaves)


def _errors(function: Function, point: Point, wanted: Called, found: Called) -> Failure | None:
    """A call fails if eager's does, but for what eager computes in vain and division by 0."""
    if wanted.error is None:
        is_resized = "resize storage that is not resizable" in str(found.error)  # a known limit
        return None if is_resized else Failure("error", shown(found.error))
    if found.error is not None or "ZeroDivisionError" in str(wanted.error):
        return None
    if any(_gives(shorter, point, found) for shorter in _without_a_line(function)):
        return None
    return Failure("no error", f"eager: {shown(wanted.error)}")


def _without_a_line(function: Function) -> Iterator[Function]:
    for place in range(len(function.lines)):
        yield replace(function, lines=function.lines[:place] + function.lines[place + 1 :])


def _gives(function: Function, point: Point, found: Called) -> bool:
    """Whether eager torch gives the results that a compiled function gave."""
    wanted = _eager(function, point)
    if wanted.error is not None:
        return False
    return all(
        difference("values", "", ours, eager, lambda: None) is None
        for ours, eager in zip(found.results, wanted.results, strict=True)
    )


def shown(error: Exception | None) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])[:300]}"


# ---- values --------------------------------------------------------------------------------------


def _compared(
    function: Function, point: Point, wanted: Called, found: Called
) -> Iterator[Failure | None]:
    exact = _Exact(function, point)
    if found.holder != wanted.holder:
        yield Failure("holder", f"{found.holder}, of eager {wanted.holder}")
    for place, (ours, eager) in enumerate(zip(found.results, wanted.results, strict=True)):
        name = function.results[place]
        is_hidden = isinstance(eager, torch.Tensor) and _is_of_hidden(
            eager, [*wanted.given.tensors, *wanted.results[:place], *wanted.results[place + 1 :]]
        )
        yield difference("values", name, ours, eager, lambda p=place: exact.results[p], is_hidden)
    for place, (ours, eager) in enumerate(zip(found.given.leaves, wanted.given.leaves)):
        name = function.inputs[place].name
        yield difference(
            "inputs", name, ours.detach(), eager.detach(), lambda p=place: exact.leaves[p]
        )
    for place, (ours, eager) in enumerate(zip(found.gradients, wanted.gradients)):
        inputs = function.inputs[place : place + 1]
        name = inputs[0].name if inputs else f"net {place}"
        yield difference("gradients", name, ours, eager, lambda: None)
    for place, (ours, eager) in enumerate(zip(found.state, wanted.state, strict=True)):
        yield difference("state", f"state {place}", ours, eager, lambda: None)


class _Exact:
    """A call of the function with inputs of float64."""

    def __init__(self, function: Function, point: Point) -> None:
        wide = (
            replace(each, dtype=_WIDE.get(each.dtype, each.dtype))
            for each in function.inputs
        )  # fmt: skip
        self.arguments = replace(function, inputs=tuple(wide)), point
        self.called: Called | None = None

    def call(self) -> Called:
        if self.called is None:
            self.called = _eager(*self.arguments)
        return self.called

    @property
    def results(self) -> tuple[Any, ...]:
        called = self.call()
        return called.results if called.error is None else (None,) * 100

    @property
    def leaves(self) -> tuple[Any, ...]:
        return self.call().given.leaves


def difference(
    kind: str, name: str, ours: Any, eager: Any, exact: Callable[[], Any], is_hidden: bool = False
) -> Failure | None:
    """The difference of a result, an input or a gradient from eager's.

    Results that are views of hidden values have memory of their own, and so other strides.
    """
    if not isinstance(eager, torch.Tensor) or not isinstance(ours, torch.Tensor):
        is_equal = type(ours) is type(eager) and _are_equal(ours, eager)
        return None if is_equal else Failure(kind, f"{name} is {ours!r}, of eager {eager!r}")
    if ours.dtype != eager.dtype or ours.shape != eager.shape:
        seen = [f"{t.dtype} {tuple(t.shape)}" for t in (ours, eager)]
        return Failure("types", f"{name} is {seen[0]}, of eager {seen[1]}")
    if ours.requires_grad != eager.requires_grad:
        return Failure("records", f"{name} has requires_grad {ours.requires_grad}")
    if kind == "values" and not is_hidden and _strides(ours) != _strides(eager):
        return Failure("strides", f"{name} has {ours.stride()}, of eager {eager.stride()}")
    limit = _TOLERANCES.get(eager.real.dtype, 0.0)
    if _is_close(ours, eager, limit, limit):
        return None
    wide = exact()
    if isinstance(wide, torch.Tensor) and wide.shape == eager.shape:
        if _is_near(ours, eager, wide, limit):
            return None
    seen = [str(t.detach().flatten()[:8].tolist()) for t in (ours, eager)]
    return Failure(kind, f"{name} is {seen[0]}, of eager {seen[1]}")


def _are_equal(ours: Any, eager: Any) -> bool:
    if isinstance(eager, float):
        return math.isclose(ours, eager, rel_tol=1e-6) or (math.isnan(ours) and math.isnan(eager))
    return bool(ours == eager)


def _is_close(ours: torch.Tensor, eager: torch.Tensor, rtol: float, atol: float) -> bool:
    ours, eager = _wide(ours), _wide(eager)
    return torch.allclose(ours, eager, rtol=rtol, atol=atol, equal_nan=True)


def _is_near(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, limit: float) -> bool:
    """Whether ours is about as far as eager's from the result in float64."""
    ours, eager, exact = (_wide(t).nan_to_num(0) for t in (ours, eager, exact))
    furthest = float((eager - exact).abs().max())
    return _is_close(ours, exact, limit, _MANY_TIMES * furthest + limit)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.detach().resolve_conj()
    return (torch.view_as_real(wide) if wide.is_complex() else wide).double()


def _strides(tensor: torch.Tensor) -> list[int]:
    """Of axes that have several elements."""
    if not tensor.numel():
        return []
    return [step for step, size in zip(tensor.stride(), tensor.shape) if size > 1]


# ---- memory --------------------------------------------------------------------------------------


def _memory(wanted: Called, found: Called) -> Iterator[Failure | None]:
    """Results that share memory with others, or do not, unlike eager's."""
    ours, eager = _tensors(found), _tensors(wanted)
    for place, result in enumerate(eager):
        if place < len(wanted.given.tensors) or not isinstance(result, torch.Tensor):
            continue
        if not result.numel() or _is_of_hidden(result, eager[:place] + eager[place + 1 :]):
            continue
        for other in range(place):
            if not isinstance(eager[other], torch.Tensor) or not eager[other].numel():
                continue
            if _is_of_hidden(eager[other], eager[:other] + eager[other + 1 :]):
                continue
            if _apart(result, eager[other]) != _apart(ours[place], ours[other]):
                seen = [_apart(result, eager[other]), _apart(ours[place], ours[other])]
                yield Failure("aliases", f"results {other} and {place}: {seen[1]}, eager {seen[0]}")


def _writes(wanted: Called, found: Called) -> Iterator[Failure | None]:
    """Write to each result in turn: the same elements of results and inputs change."""
    ours, eager = _tensors(found), _tensors(wanted)
    first = len(wanted.given.tensors)
    for place in range(first, len(eager)):
        if not isinstance(eager[place], torch.Tensor) or _is_of_hidden(
            eager[place], eager[:place] + eager[place + 1 :]
        ):
            continue
        if not torch._debug_has_internal_overlap(eager[place]):
            for each in (ours[place], eager[place]):
                each.detach().fill_(place % 2)
    for place, (own, theirs) in enumerate(zip(ours, eager)):
        if isinstance(theirs, torch.Tensor) and not _is_close(own, theirs, 0.1, 0.1):
            yield Failure("writes", f"result {place - first} differs after writes to all results")


def _tensors(called: Called) -> list[Any]:
    return [*called.given.tensors, *called.results]


def _is_of_hidden(result: torch.Tensor, others: list[Any]) -> bool:
    """Whether a result is a view of a value that is neither a result nor an input."""
    start = result.untyped_storage().data_ptr()
    return not _is_whole(result) and not any(
        isinstance(other, torch.Tensor)
        and other.untyped_storage().data_ptr() == start
        and _is_whole(other)
        for other in others
    )


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether the elements of a tensor are those of its memory."""
    held = tensor.untyped_storage().nbytes()
    is_dense = torch._prims_common.is_non_overlapping_and_dense_or_false(tensor)
    return is_dense and held == tensor.numel() * tensor.element_size()


def _apart(one: torch.Tensor, other: torch.Tensor) -> int | None:
    """The elements between two tensors of one memory; None if they have memories of their own."""
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return None
    distance = one.storage_offset() * one.element_size()
    return distance - other.storage_offset() * other.element_size()
