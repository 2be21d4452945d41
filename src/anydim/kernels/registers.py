"""Which registers steps change: what a walk over loops and branches asks."""

from __future__ import annotations

from collections.abc import Iterator

from anydim.kernels import ir


def assigned(steps: tuple[ir.Step, ...]) -> Iterator[str]:
    """Names of the registers that steps give new values to."""
    for step in steps:
        if isinstance(step, ir.Assign):
            yield step.name
        elif isinstance(step, ir.Fragments):
            yield from step.sums
        elif isinstance(step, (ir.For, ir.While)):
            yield from assigned(step.body)
        elif isinstance(step, ir.If):
            yield from assigned(step.then)
            yield from assigned(step.otherwise)
        elif isinstance(step, ir.Switch):
            for _, body in step.cases:
                yield from assigned(body)
