"""Removal of steps whose values nothing needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from anydim.lang.derivatives.accesses import at_paths, expressions
from anydim.lang.tree import Branch, Loop, OrderedStep, Statement, Write
from anydim.lang.tree.affine import reads


def needed_steps(steps: Sequence[OrderedStep], results: Collection[str]) -> tuple[OrderedStep, ...]:
    """The steps that compute `results`."""
    live = set(results)
    while True:
        kept = _keep_live(steps, live)
        more = {
            read.tensor
            for step, _, _ in at_paths(kept)
            for expr in expressions(step)
            for read in reads(expr)
        }
        if more <= live:
            return kept
        live |= more


def _keep_live(steps: Sequence[OrderedStep], live: Collection[str]) -> tuple[OrderedStep, ...]:
    made: list[OrderedStep] = []
    for step in steps:
        if isinstance(step, Loop):
            body = _keep_live(step.body, live)
            made += [replace(step, body=body)] if body else []
        elif isinstance(step, Branch):
            then, otherwise = _keep_live(step.then, live), _keep_live(step.otherwise, live)
            made += [replace(step, then=then, otherwise=otherwise)] if then or otherwise else []
        elif isinstance(step, (Statement, Write)) and step.target in live:
            made.append(step)
    return tuple(made)
