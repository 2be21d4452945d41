"""Runs entries: reads `entry dtype` lines, writes one JSON line for each."""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any
from unittest import mock

import torch
import torch.utils._pytree as pytree

from tests.torch.op_db import backends, cases
from tests.torch.op_db.judge import difference

_DATABASE = "torch.testing._internal.common_methods_invocations"
_ORDER = ("right", "fixed", "unexported", "refused", "wrong", "failed")  # the worst counts


def judged(case: cases.Case, backend: str) -> dict[str, Any]:
    """The outcome of one case: at the exported size, at two others, and empty."""
    try:
        program = cases.export(case)
    except Exception as error:
        return {"outcome": "unexported", "why": _first(error)}
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


def outcome_of(name: str, dtype: torch.dtype, backend: str, count: int) -> dict[str, Any]:
    """The worst outcome of an entry's cases that export."""
    try:
        found = [judged(case, backend) for case in cases.cases(name, dtype, count)]
    except Exception as error:
        return {"outcome": "unexported", "why": f"samples: {_first(error)}"}
    exported = [each for each in found if each["outcome"] != "unexported"]
    if not exported:
        return found[0] if found else {"outcome": "unexported", "why": "no samples"}
    return max(exported, key=lambda each: _ORDER.index(each["outcome"]))


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    backend, count = sys.argv[1], int(sys.argv[2])
    print("ready", flush=True)
    for line in sys.stdin:
        name, dtype = line.split()
        start = time.perf_counter()
        made = outcome_of(name, getattr(torch, dtype), backend, count)
        made |= {"entry": name, "dtype": dtype, "seconds": round(time.perf_counter() - start, 2)}
        print(json.dumps(made), flush=True)


if __name__ == "__main__":
    main()
