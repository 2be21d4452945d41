"""Steps inside of steps: what a walk over loops and branches asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anydim.kernels import ir


def blocks_of(step: ir.Step) -> tuple[tuple[ir.Step, ...], ...]:
    """The bodies of a loop, the sides of a branch; none of other steps."""
    if isinstance(step, (ir.For, ir.While)):
        return (step.body,)
    if isinstance(step, ir.If):
        return step.then, step.otherwise
    if isinstance(step, ir.Switch):
        return tuple(body for _, body in step.cases)
    return ()


def every_step(steps: Iterable[ir.Step]) -> Iterator[ir.Step]:
    """Steps, and all that stand in them, in the order of the text."""
    for step in steps:
        yield step
        for block in blocks_of(step):
            yield from every_step(block)


def assigned(steps: Iterable[ir.Step]) -> Iterator[str]:
    """Names of the registers that steps give new values to."""
    for step in every_step(steps):
        if isinstance(step, ir.Assign):
            yield step.name
        elif isinstance(step, ir.Fragments):
            yield from step.sums
