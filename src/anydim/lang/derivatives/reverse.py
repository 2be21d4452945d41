"""The backward pass of steps, last to first, with the values that it needs from the forward pass.

A loop runs backwards. Of the values that its iterations overwrite:

- values that no later write changes are read where they are (`h(t - 1)` of a recurrence),
- tensors that each iteration defines anew are computed again,
- other tensors are saved at the start of each iteration, and set back before it.

A branch does the same with one iteration. A value that a later step of the same block overwrites
is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.lang.derivatives.accesses import (
    ARMS,
    Access,
    Path,
    access_of,
    at_paths,
    defined_first,
    defines,
    expressions,
    reads_of,
    writes_in,
)
from anydim.lang.derivatives.algebra import ZERO, call, simplify
from anydim.lang.derivatives.cotangents import Block, Cotangents, axes_of, copy_tensor, indices_of
from anydim.lang.derivatives.flow import NoDerivative
from anydim.lang.derivatives.step_adjoints import AFTER, StepAdjoint
from anydim.lang.derivatives.survival import overwritten, size_of
from anydim.lang.surface.printer import print_step
from anydim.lang.tree import (
    Branch,
    Expr,
    Literal,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import reads
from anydim.lang.tree.renaming import rename_steps
from anydim.lang.tree.stepping import with_expressions, written_tensors
from anydim.sizes import Size, as_size, maximum


class NoStepDerivative(Exception):
    """A statement without a derivative, and why."""

    def __init__(self, step: OrderedStep, reason: str) -> None:
        self.step, self.reason = step, reason
        (shown,) = with_expressions((step,), simplify)
        super().__init__(f"{reason}: {print_step(shown)}")


@dataclass
class _Body:
    """The backward pass of the block of a loop or branch.

    `again`: tensors computed again; `saved`: those of them that are set back first. `needs`: the
    values of other tensors that the pass reads.
    """

    steps: list[OrderedStep]
    again: set[str]
    saved: list[str]
    needs: list[Access]


@dataclass
class Reverse:
    """Writes the backward pass into the blocks of `cotangents`.

    `beginnings` are definitions that the forward pass starts with: of tensors that are saved before
    the language knows a value of them.
    """

    cotangents: Cotangents
    forward: frozenset[str]  # tensors of the forward pass
    beginnings: dict[str, OrderedStep] = field(default_factory=dict)

    def block(
        self, steps: Sequence[OrderedStep], path: Path, loops: tuple[Loop, ...]
    ) -> tuple[list[OrderedStep], list[Access]]:
        """Append the backward steps of a block to the current one.

        Returns its forward steps, with values saved, and the reads of forward values.
        """
        ahead: list[OrderedStep] = []
        needs: list[Access] = []
        later: list[Access] = []
        for number in reversed(range(len(steps))):
            step, here = steps[number], (*path, number)
            own = writes_in((step,), here[:-1], loops)
            own = [replace(w, path=(*here, *w.path[len(here) :])) for w in own]
            mark = len(self.cotangents.block.steps)
            forward, found = self._step(step, here, loops)
            names = self._copies_to_keep(step, found, own, later, loops)
            self._rename(mark, names)
            ahead = [*self._copies(names, forward), *ahead]
            needs += found
            later += own
        return ahead, needs

    def _step(
        self, step: OrderedStep, here: Path, loops: tuple[Loop, ...]
    ) -> tuple[list[OrderedStep], list[Access]]:
        if not written_tensors((step,)) & self.cotangents.active:
            return [step], []
        if isinstance(step, Loop):
            return self._loop(step, here, loops)
        if isinstance(step, Branch):
            return self._branch(step, here, loops)
        mark = len(self.cotangents.block.steps)
        try:
            StepAdjoint(self.cotangents, step, here, loops).run()
        except NoDerivative as problem:
            raise NoStepDerivative(step, str(problem)) from None
        made = self.cotangents.block.steps[mark:]
        return [step], self._reads(made, here, loops)

    def _reads(
        self, steps: Sequence[OrderedStep], here: Path, loops: tuple[Loop, ...]
    ) -> list[Access]:
        """The reads of forward values in backward steps of a statement."""
        found = []
        for step, _, _ in at_paths(steps):
            for expr in expressions(step):
                for read in reads(expr):
                    name, _, after = read.tensor.partition("@")
                    if name in self.forward:
                        at = (*here, 0) if after else here
                        found.append(access_of(replace(read, tensor=name), at, loops))
        return found

    # ---- values that later steps overwrite ------------------------------------------------------

    def _copies_to_keep(
        self, step: OrderedStep, needs: list[Access], own: list[Access], later: list[Access],
        loops: tuple[Loop, ...],
    ) -> dict[str, str]:  # fmt: skip
        """Names of copies, by the tensor, or the tensor after the step, that they are of."""
        names: dict[str, str] = {}
        simple = isinstance(step, (Statement, Write))
        fixed = len(loops)
        for need in [each for each in needs if not each.entry]:
            key = need.tensor
            if simple and any(w.tensor == key for w in own):
                if len(need.path) > len(own[0].path):
                    key += AFTER
            rivals = [*own, *later] if simple and key == need.tensor else later
            hit = any(w.tensor == need.tensor and overwritten(need, w, fixed) for w in rivals)
            if hit and key not in names:
                names[key] = self._copy_name(need.tensor)
        for need in needs:
            names.setdefault(need.tensor + AFTER, need.tensor)
        return names

    def _copy_name(self, tensor: str) -> str:
        return self.cotangents.temporary(f"{tensor}_copies_to_keep", self.cotangents.types[tensor])

    def _rename(self, mark: int, names: dict[str, str]) -> None:
        block = self.cotangents.block
        block.steps[mark:] = rename_steps(block.steps[mark:], names)

    def _copies(self, names: dict[str, str], forward: list[OrderedStep]) -> list[OrderedStep]:
        """The forward steps with copies before and after them."""
        before: list[OrderedStep] = []
        behind: list[OrderedStep] = []
        targets = written_tensors(forward)
        simple = all(isinstance(step, (Statement, Write)) for step in forward)
        for key, name in names.items():
            tensor = key.removesuffix(AFTER)
            if name == tensor:
                continue
            copy = copy_tensor(name, tensor, self.cotangents.types[tensor])
            early = simple and tensor in targets and not key.endswith(AFTER)
            (before if early else behind).append(copy)
        return [*before, *forward, *behind]

    # ---- loops and branches ---------------------------------------------------------------------

    def _loop(
        self, step: Loop, here: Path, loops: tuple[Loop, ...]
    ) -> tuple[list[OrderedStep], list[Access]]:
        cotangents = self.cotangents
        self._start_around(step, here)
        body = self._body(step.body, here, loops, (*loops, step))
        trips = _trips(step) if body.saved else None
        if body.saved and trips is None:
            raise NoStepDerivative(step, "the number of iterations to save values of is data")
        before: list[OrderedStep] = []
        saving: list[OrderedStep] = []
        restoring: list[OrderedStep] = []
        for tensor in body.saved:
            assert trips is not None
            kind = cotangents.types[tensor]
            name = cotangents.temporary(
                f"{tensor}_saved", TensorType(kind.dtype, (trips, *kind.shape))
            )
            axes = axes_of(kind)
            at = (_iteration(step), *indices_of(axes))
            self._begin(tensor, here)
            if abs(step.step) > 1:  # only a loop that fills every position in turn defines
                before.append(Statement(name, axes_of(cotangents.types[name]), ZERO))
            saving.append(Write(name, at, axes, Read(tensor, indices_of(axes))))
            restoring.append(Statement(tensor, axes, Read(name, at)))
        cotangents.emit(_backward(step, (*restoring, *body.steps)))
        bounds = [*reads_of(step, here, loops)]
        needs = [*body.needs, *bounds, *_entries(body.saved, here, loops)]
        return [*before, replace(step, body=(*saving, *step.body))], needs

    def _begin(self, tensor: str, here: Path) -> None:
        """Give a tensor that a loop or branch saves a value at the start, if it has none before."""
        written_before = any(
            w.path < here for w in writes_in(self.cotangents.steps) if w.tensor == tensor
        )
        if not written_before:
            axes = axes_of(self.cotangents.types[tensor])
            self.beginnings[tensor] = Statement(tensor, axes, ZERO)

    def _branch(
        self, step: Branch, here: Path, loops: tuple[Loop, ...]
    ) -> tuple[list[OrderedStep], list[Access]]:
        cotangents = self.cotangents
        self._start_around(step, here)
        arms: list[tuple[OrderedStep, ...]] = []
        copies: dict[str, str] = {}
        needs = [*reads_of(step, here, loops)]
        for arm, steps in zip(ARMS, (step.then, step.otherwise)):
            body = self._body(steps, (*here, arm), loops, loops)
            needs += [*body.needs, *_entries(body.saved, here, loops)]
            restoring = []
            for tensor in body.saved:
                if tensor not in copies:
                    self._begin(tensor, here)
                    copies[tensor] = self._copy_name(tensor)
                restoring.append(copy_tensor(tensor, copies[tensor], cotangents.types[tensor]))
            arms.append((*restoring, *body.steps))
        cotangents.emit(Branch(step.condition, *arms))
        before = [copy_tensor(name, t, cotangents.types[t]) for t, name in copies.items()]
        return [*before, step], needs

    def _start_around(self, step: OrderedStep, here: Path) -> None:
        """Define the cotangents that the backward steps of a block add to and others read."""
        cotangents = self.cotangents
        for name in sorted(self._touched_tensors(step) & cotangents.active):
            home = cotangents.homes.get(name, ())
            if home[: len(here)] == here:
                continue
            if not cotangents.is_defined(name) or cotangents.changes(name):
                cotangents.start(name)

    def _touched_tensors(self, step: OrderedStep) -> set[str]:
        found = set(written_tensors((step,)))
        for inner, _, _ in at_paths((step,)):
            found |= {read.tensor for expr in expressions(inner) for read in reads(expr)}
        return found

    def _body(
        self, steps: Sequence[OrderedStep], path: Path, outer: tuple[Loop, ...],
        loops: tuple[Loop, ...],
    ) -> _Body:  # fmt: skip
        cotangents = self.cotangents
        cotangents.blocks.append(Block(path))
        ahead, needs = self.block(steps, path, loops)
        backward = cotangents.blocks.pop().steps
        writes = writes_in(steps, path, loops)
        every_read, again = self._again(steps, path, loops, needs, writes, len(outer))
        own = {write.tensor for write in writes}
        paths = {t: {need.path for need in every_read if need.tensor == t} for t in again}
        saved = sorted(t for t in again if not defined_first(t, steps, path, paths[t]))
        rerun = _only(ahead, own - again) if backward else []
        outside = [need for need in every_read if need.tensor not in again]
        return _Body([*rerun, *backward], again, saved if backward else [], outside)

    def _again(
        self, steps: Sequence[OrderedStep], path: Path, loops: tuple[Loop, ...],
        needs: list[Access], writes: list[Access], fixed: int,
    ) -> tuple[list[Access], set[str]]:  # fmt: skip
        """All forward values that are read, and the tensors whose values are computed again."""
        found = list(needs)
        again: set[str] = set()
        while True:
            more = {
                need.tensor for need in found for write in writes
                if need.tensor == write.tensor and need.tensor not in again
                and overwritten(need, write, fixed)
            }  # fmt: skip
            if not more:
                return found, again
            again |= more
            for step, here, around in at_paths(steps, path, loops):
                if written_tensors((step,)) & more:
                    found += reads_of(step, here, around)
                    found += _own_reads(step, here, around)


def _entries(saved: Sequence[str], here: Path, loops: tuple[Loop, ...]) -> list[Access]:
    """The reads of tensors that a loop or branch saves when it starts."""
    return [Access(tensor, None, here, loops, entry=True) for tensor in saved]


def _own_reads(step: OrderedStep, here: Path, loops: tuple[Loop, ...]) -> list[Access]:
    """The implicit read of the target by an accumulating step."""
    if isinstance(step, Write) and not defines(step):
        return [Access(step.target, step.indices, here, loops)]
    return []


def _only(steps: Sequence[OrderedStep], without: set[str]) -> list[OrderedStep]:
    """The steps that do not write some tensors."""
    made: list[OrderedStep] = []
    for step in steps:
        if isinstance(step, Loop):
            made.append(replace(step, body=tuple(_only(step.body, without))))
        elif isinstance(step, Branch):
            then, otherwise = (tuple(_only(b, without)) for b in (step.then, step.otherwise))
            made.append(replace(step, then=then, otherwise=otherwise))
        elif step.target not in without:
            made.append(step)
    return made


# ---- iterations --------------------------------------------------------------------------------


def _trips(loop: Loop) -> Size | None:
    """The number of iterations, if it is a size."""
    start, stop = size_of(loop.start), size_of(loop.stop)
    if start is None or stop is None:
        return None
    span = stop - start if loop.step > 0 else start - stop
    step = abs(loop.step)
    return maximum(as_size((span + (step - 1)) // step if step > 1 else span), as_size(0))


def _iteration(loop: Loop) -> Expr:
    """The number of an iteration, from 0."""
    start = size_of(loop.start)
    assert start is not None
    t = Size.symbol(loop.variable)
    distance = t - start if loop.step > 0 else start - t
    return SizeTerm(distance // abs(loop.step) if abs(loop.step) > 1 else distance)


def _backward(loop: Loop, body: tuple[OrderedStep, ...]) -> Loop:
    """The loop over the same values in the other order."""
    if abs(loop.step) == 1:
        start, stop = _shift(loop.stop, -loop.step), _shift(loop.start, -loop.step)
        return Loop(loop.variable, start, stop, -loop.step, body)
    first, trips = size_of(loop.start), _trips(loop)
    if first is None or trips is None:
        raise NoStepDerivative(loop, "the last iteration of a loop with a step is not a size")
    last = first + (trips - 1) * loop.step
    return Loop(loop.variable, SizeTerm(last), SizeTerm(first - loop.step), -loop.step, body)


def _shift(end: Expr, by: int) -> Expr:
    size = size_of(end)
    if size is not None:
        return SizeTerm(size + by)
    return call("add", end, Literal(by, int64))
