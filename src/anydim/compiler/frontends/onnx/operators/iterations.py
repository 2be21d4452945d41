"""Loops with carried values whose sizes may change between iterations.

The sizes of carried values are found by fixed-point iteration. At first every carried value keeps
its initial sizes. If an iteration adds (or removes) the same amount every time, the size in
iteration t is start + amount * t; an amount that depends on data or broadcasting does not qualify.
Otherwise the axis gets a dim of its own that every iteration binds anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anydim.base.dtypes import boolean
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import Body, OnnxNode
from anydim.compiler.frontends.onnx.values.bindings import Binding
from anydim.compiler.frontends.onnx.values.forms import (
    Kind,
    common_form,
    elements_of,
    kind_of,
    rebuild,
    tensors_of,
    width,
)
from anydim.compiler.graph.regions import LOOP, LoopRegion, Scan
from anydim.lang.tree import TensorType
from anydim.sizes import Size, Truth, as_size, bounds, maximum, prove, simplify

_MOST_ATTEMPTS = 64


@dataclass(frozen=True)
class Axis:
    """The size of an axis of a carried value: `start + amount * t` in iteration t.

    `amount` None: a dim that every iteration binds.
    """

    start: Size
    amount: Size | None


@dataclass
class Attempt:
    """One import of the body, for assumed types of the carried values."""

    body: Body
    counter: Size
    taken: list[TensorType]
    results: list[Binding]


@dataclass
class Iterations:
    """A loop during the import of its body.

    `bind(body, counter)` binds the names that are not carried values; the carried ones are `names`.
    `has_condition` returns whether the first result of an imported body is the condition for the
    next iteration.
    """

    call: OnnxNode
    proto: Any
    trips: Size | None
    first: str | None  # the condition for the first iteration, if it is data
    names: Sequence[str]
    has_condition: Callable[[Body], bool]
    bind: Callable[[Body, Size], None]
    is_conditional: bool = False

    def run(self, carried: Sequence[Binding], reverse: Sequence[bool] = ()) -> list[Binding]:
        """The carried values after the last iteration, then the stacked results.

        `reverse`: for each stacked result, whether the first iteration makes its last slice.
        """
        attempt, forms, axes = self.settle(carried)
        results = attempt.results[self.is_conditional :]
        reverse = reverse or [False] * (len(results) - len(forms))
        body, emitter = attempt.body, attempt.body.emitter
        condition = self.condition(attempt)
        made = _flatten(body, results, forms)
        slices = results[len(forms) :]
        if not all(isinstance(held, str) for held in slices):
            raise Unsupported("a stacked result that is no tensor")
        stacked = [str(held) for held in slices]
        outputs = [*([condition] if condition else []), *made, *stacked]
        first = [self.call.number(True, boolean)] if condition and not self.first else []
        first = [self.first] if condition and self.first else first
        given = _flatten(self.call, carried, forms)
        sure = not condition and self.trips is not None
        kinds = [self.after(kind, own, sure) for kind, own in zip(attempt.taken, axes)]
        iterations = self.iterations(sure)
        types = [emitter.types[name] for name in stacked]
        kinds += [self.stack(kind, iterations) for kind in types]
        scans = [self.scan(attempt, k, iterations, back, sure) for k, back in zip(types, reverse)]
        graph = body.graph(outputs)
        region = LoopRegion(
            graph, str(attempt.counter), self.trips, bool(condition), len(made), tuple(scans)
        )
        inputs = [*first, *given, *body.captures]
        values = self.call.region(LOOP, inputs, kinds, region)
        after = values[: len(made)]
        final: list[Binding] = [rebuild(form, after) for form in forms]
        for value, scan, back in zip(values[len(made) :], scans, reverse):
            flip = back and scan.extent is None
            final.append(self.flip(value) if flip else value)
        return final

    # ---- the types of carried values ----

    def settle(self, carried: Sequence[Binding]) -> tuple[Attempt, list[Kind], list[list[Axis]]]:
        """Import the body until its results have the types that it was imported for."""
        emitter = self.call.emitter
        forms = [kind_of(emitter, held) for held in carried]
        axes: list[list[Axis]] | None = None
        mark = self.call.scope.mark()
        for _ in range(_MOST_ATTEMPTS):
            self.call.scope.reset(mark)
            kept = len(self.call.nodes)
            given = _flatten(self.call, carried, forms)
            del self.call.nodes[kept:]
            kinds = [emitter.types[name] for name in given]
            if axes is None:
                axes = [[Axis(size, as_size(0)) for size in kind.shape] for kind in kinds]
            attempt = self.attempt(forms, kinds, axes)
            met = self.common_forms(attempt, carried, forms)
            if met != forms:
                forms, axes = met, None
                continue
            next_axes = self.next_axes(attempt, forms, kinds, axes)
            if next_axes == axes:
                return attempt, forms, axes
            axes = next_axes
        raise Unsupported("carried values whose sizes do not settle")

    def attempt(
        self, forms: Sequence[Kind], kinds: Sequence[TensorType], axes: Sequence[list[Axis]]
    ) -> Attempt:
        body = self.call.scope.body(self.proto)
        limit = None if self.trips is None else bounds(self.trips, self.call.emitter.box).hi
        counter = body.emitter.dim("iteration", 0, None if limit is None else max(limit - 1, 0))
        if self.trips is not None and self.trips != 0:
            body.emitter.constrain(self.trips - 1 - counter)
        taken = []
        values = []
        stems = [name for name, form in zip(self.names, forms) for _ in range(width(form))]
        for stem, kind, own in zip(stems, kinds, axes):
            shape = tuple(self.inside(body, counter, stem, axis) for axis in own)
            taken.append(TensorType(kind.dtype, shape))
            values.append(body.add_input(stem, taken[-1]))
        for name, form in zip(self.names, forms):
            body.bind(name, rebuild(form, values))
        self.bind(body, counter)
        results = body.run()
        self.is_conditional = self.has_condition(body)
        if len(results) < len(self.names) + self.is_conditional:
            raise Unsupported(f"a body with {len(results)} results")
        return Attempt(body, counter, taken, results)

    def inside(self, body: Body, counter: Size, stem: str, axis: Axis) -> Size:
        if axis.amount is None:
            return body.emitter.dim(stem)
        return axis.start + axis.amount * counter

    def common_forms(
        self, attempt: Attempt, carried: Sequence[Binding], forms: Sequence[Kind]
    ) -> list[Kind]:
        """The common forms of the carried values before and after an iteration."""
        emitter, outer = attempt.body.emitter, self.call.emitter
        return [
            common_form(
                form,
                kind_of(emitter, held),
                elements_of(emitter, held) + elements_of(outer, first),
            )
            for form, held, first in zip(forms, attempt.results[self.is_conditional :], carried)
        ]

    def next_axes(
        self, attempt: Attempt, forms: Sequence[Kind], kinds: Sequence[TensorType],
        axes: list[list[Axis]],
    ) -> list[list[Axis]]:  # fmt: skip
        """The sizes to try next; equal to `axes` at the fixed point."""
        made = _flatten(attempt.body, attempt.results[self.is_conditional :], forms)
        stems = [name for name, form in zip(self.names, forms) for _ in range(width(form))]
        found = []
        for stem, name, kind, own in zip(stems, made, kinds, axes):
            after = attempt.body.emitter.types[name]
            if after.dtype != kind.dtype or after.rank != kind.rank:
                raise Unsupported(
                    f"its carried value '{stem}' is {kind} before the first iteration and {after} "
                    "after an iteration; element type and number of axes must not change"
                )
            found.append([self.next(attempt, a, size) for a, size in zip(own, after.shape)])
        return found

    def next(self, attempt: Attempt, axis: Axis, size: Size) -> Axis:
        if axis.amount is None:
            return axis
        box = attempt.body.emitter.box
        expected = axis.start + axis.amount * (attempt.counter + 1)
        if prove(size, "==", expected, box) is Truth.PROVED:
            return axis
        amount = simplify(size - axis.start, box)
        outside = amount.symbols <= set(self.call.emitter.box.names)
        steady = any(self.call.proved(amount, relation, 0) for relation in (">=", "<="))
        return Axis(axis.start, amount if axis.amount == 0 and outside and steady else None)

    # ---- results ----

    def condition(self, attempt: Attempt) -> str:
        """The condition computed by the body; empty if it is always true."""
        if not self.is_conditional:
            return ""
        held, emitter = attempt.results[0], attempt.body.emitter
        if not isinstance(held, str) or emitter.types[held].dtype != boolean:
            raise Unsupported("a condition that is not bool")
        known = emitter.known.get(held)
        if known is not None and not known.has_sizes and known.array.all():
            return held if self.first else ""
        return attempt.body.emit("reshape", held, shape=()) if emitter.types[held].rank else held

    def after(self, kind: TensorType, axes: Sequence[Axis], sure: bool) -> TensorType:
        """The type of a carried value after the last iteration; `sure`: all iterations run."""
        shape = []
        for axis in axes:
            if axis.amount == 0:
                shape.append(axis.start)
            elif axis.amount is not None and sure and self.trips is not None:
                shape.append(axis.start + axis.amount * self.trips)
            else:
                shape.append(self.final_dim(axis))
        return TensorType(kind.dtype, tuple(shape))

    def final_dim(self, axis: Axis) -> Size:
        """A new dim for a final size known only at run time."""
        emitter = self.call.emitter
        amount = axis.amount
        if amount is None or not self.call.proved(amount, ">=", 0):
            return self.call.dim("size")
        last = None if self.trips is None else axis.start + amount * self.trips
        low = bounds(axis.start, emitter.box).lo
        dim = self.call.dim(
            "size", max(low or 0, 0), None if last is None else bounds(last, emitter.box).hi
        )
        emitter.constrain(dim - axis.start, *([] if last is None else [last - dim]))
        return dim

    def iterations(self, sure: bool) -> Size:
        """The number of iterations, as a size."""
        emitter = self.call.emitter
        if self.trips is not None and sure:
            return self.trips
        limit = None if self.trips is None else bounds(self.trips, emitter.box).hi
        dim = self.call.dim("iterations", 0, limit)
        if self.trips is not None:
            emitter.constrain(self.trips - dim)
        return dim

    def stack(self, kind: TensorType, iterations: Size) -> TensorType:
        known = set(self.call.emitter.box.names)
        shape = [size if size.symbols <= known else self.call.dim("size") for size in kind.shape]
        return TensorType(kind.dtype, (iterations, *shape))

    def scan(
        self, attempt: Attempt, kind: TensorType, iterations: Size, reverse: bool, sure: bool
    ) -> Scan:
        """A scan output; slices of known sizes have fixed positions."""
        known = set(self.call.emitter.box.names)
        fixed = sure and all(size.symbols <= known for size in kind.shape)
        if not fixed:
            return Scan(attempt.counter)
        position = iterations - 1 - attempt.counter if reverse else attempt.counter
        return Scan(position, iterations)

    def flip(self, value: str) -> str:
        ends = {"starts": (-1,), "ends": (-(2**62),), "axes": (0,), "steps": (-1,)}
        return self.call.emit("slice", value, **ends)


def _flatten(emits: OnnxNode | Body, values: Sequence[Binding], forms: Sequence[Kind]) -> list[str]:
    """The tensors of several values in their forms."""
    return [name for pair in zip(values, forms) for name in tensors_of(emits, *pair)]


def trips_of(size: Size, call: OnnxNode) -> Size | None:
    """A non-negative number of iterations; None if it is unlimited."""
    if size.constant is not None and size.constant >= 1 << 62:
        return None
    return simplify(maximum(size, 0), call.emitter.box)
