"""Runs entries: reads lines `entry dtype backend,backend`, writes a JSON line per backend."""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import torch
import torch.utils._pytree as pytree

from tests.torch.op_db import backends, cases
from tests.torch.op_db.judge import difference

_DATABASE = "torch.testing._internal.common_methods_invocations"
_CHECKS = ("aten::_assert", "aten::sym_")  # no results, or sizes alone
_ORDER = ("right", "refused", "wrong", "failed")  # the worst counts


@dataclass(frozen=True)
class Exported:
    """A case, its exported program, and whether its default decomposition is of core ATen alone."""

    case: cases.Case
    program: Any
    is_core: bool


def exported(name: str, dtype: torch.dtype, count: int) -> list[Exported] | dict[str, Any]:
    """The cases of an entry that export, or why none does."""
    found, why = [], "no samples"
    try:
        for case in cases.cases(name, dtype, count):
            try:
                program = cases.export(case)
            except Exception as error:
                why = _first(error)
            else:
                found.append(Exported(case, program, _is_core(program)))
    except Exception as error:
        why = f"samples: {_first(error)}"
    return found or {"outcome": "unexported", "why": why}


def _is_core(program: Any) -> bool:
    try:
        with torch.no_grad():
            nodes = program.run_decompositions(_defaults()).graph.nodes
    except Exception:
        return False
    targets = {node.target for node in nodes if isinstance(node.target, torch._ops.OpOverload)}
    return all(torch.Tag.core in each.tags for each in targets
               if not each._schema.name.startswith(_CHECKS))  # fmt: skip


@cache
def _defaults() -> Any:
    return torch.export.default_decompositions()


def judged(given: Exported, backend: str) -> dict[str, Any]:
    """The outcome of one case: at the exported size, at two others, and empty."""
    case, program = given.case, given.program
    try:
        run = backends.BACKENDS[backend](program)
    except backends.Refused as error:
        return {"outcome": "refused", "why": _first(error)}
    except Exception as error:
        return {"outcome": "failed", "why": f"compile: {_first(error)}"}
    sizes = [case.tensors, *(cases.resized(program, case, growth) for growth in (0, 1))]
    for number, tensors in enumerate(sizes):
        outcome = None if tensors is None else _at(case, run, tensors, number)
        if outcome:
            return outcome
    free = sizes[1] is not None
    return {"outcome": "right", "why": "", "free": free, **_empty(case, program, run)}


def _empty(case: cases.Case, program: Any, run: Any) -> dict[str, Any]:
    """The outcome at a size of 0, where torch allows it."""
    tensors = cases.resized(program, case, None)
    outcome = None if tensors is None else _at(case, run, tensors, 3)
    return {"empty": outcome["why"] if outcome else ""}


def _at(
    case: cases.Case, run: Any, tensors: tuple[torch.Tensor, ...], number: int
) -> dict[str, Any] | None:
    """The outcome at one size; None if it is right, or torch itself refuses the size."""
    try:
        with torch.no_grad():
            whole = case.module(*(t.clone() for t in tensors))
            wanted = case.results(whole)
            again = [_reseeded(case, tensors, seed) for seed in (1, 2)]
    except Exception:
        return None
    is_random = bool(difference(*again, False))
    shapes = [tuple(t.shape) for t in tensors]
    try:
        leaves, spec = pytree.tree_flatten(whole)
        found = run(tuple(t.clone() for t in tensors))
        if len(found) == len(leaves):
            found = case.results(pytree.tree_unflatten(found, spec))
    except Exception as error:
        return {"outcome": "failed", "why": f"size {number} {shapes}: {_first(error)}"}
    text = difference(wanted, found, is_random)
    return {"outcome": "wrong", "why": f"size {number} {shapes}: {text}"} if text else None


def _reseeded(case: cases.Case, tensors: tuple[torch.Tensor, ...], seed: int) -> list[Any]:
    """torch's results with another seed, also of entries that set their own."""
    torch.manual_seed(seed)
    with mock.patch(f"{_DATABASE}.set_rng_seed"):
        return case.results(case.module(*(t.clone() for t in tensors)))


def _first(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line]
    return f"{type(error).__name__}: {' '.join(lines[:2])[:400]}"


def outcome_of(
    name: str, dtype: torch.dtype, backend: str, count: int,
    given: list[Exported] | dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The worst outcome of an entry's cases that export."""
    given = exported(name, dtype, count) if given is None else given
    if isinstance(given, dict):
        return given
    found = [{"core": each.is_core, **judged(each, backend)} for each in given]
    return max(found, key=lambda each: _ORDER.index(each["outcome"]))


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    count = int(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        name, kind, wanted = line.split()
        dtype = getattr(torch, kind)
        given = exported(name, dtype, count)
        for backend in wanted.split(","):
            start = time.perf_counter()
            made = {"backend": backend, "entry": name, "dtype": kind}
            made |= outcome_of(name, dtype, backend, count, given)
            made |= {"seconds": round(time.perf_counter() - start, 2)}
            print(json.dumps(made), flush=True)


if __name__ == "__main__":
    main()
