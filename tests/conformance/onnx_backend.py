"""The tests that come with onnx, through anydim's Backend, in two passes.

    python -m tests.conformance.onnx_backend                        # everything, a summary
    python -m tests.conformance.onnx_backend --operator Resize --list-failures
    python -m tests.conformance.onnx_backend --write                # note what fails now

In the pass 'free' every axis of every input is a dim of its own before compiling, as far as the
operators allow it; in the pass 'static' the sizes are those that the models declare.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from anydim.backend import Backend
from tests.conformance.backend_exclusions import (
    EXCLUDED,
    KNOWN_AT_COMPILATION,
    RANDOM,
    TOLERANCES,
)

PASSES = ("free", "static")
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
FAILURES = Path(__file__).with_name("backend_failures.txt")


@dataclass(frozen=True)
class Case:
    """A test of onnx: a model and pairs of inputs and results."""

    name: str
    model: onnx.ModelProto
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float

    @property
    def operator(self) -> str:
        """The operator that a node test is about; that of an expanded one is in its name."""
        return self.model.graph.node[0].op_type if self.model.graph.node else ""


@dataclass(frozen=True)
class Outcome:
    """How a case went in a pass: 'passed', 'failed' or 'excluded', with the reason."""

    case: str
    run: str
    state: str
    reason: str = ""
    fixed: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def cases() -> tuple[Case, ...]:
    """Every test, by kind and name."""
    found: list[Case] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for kind in KINDS:
            made = [_case(test) for test in load_model_tests(kind=kind)]
            found += sorted(made, key=lambda case: case.name)
    return tuple(found)


def quick() -> tuple[Case, ...]:
    """The first test of each operator."""
    first: dict[str, Case] = {}
    for case in cases():
        first.setdefault(case.operator, case)
    return tuple(first.values())


def _case(test: Any) -> Case:
    if test.model is not None:
        data = [tuple(map(_arrays, pair)) for pair in test.data_sets]
        return Case(test.name, test.model, data, test.rtol, test.atol)
    folder = Path(test.model_dir)
    model = onnx.load(str(folder / "model.onnx"))
    data = [
        (
            list(_stored(part, "input", model.graph.input)),
            list(_stored(part, "output", model.graph.output)),
        )
        for part in sorted(folder.glob("test_data_set*"))
    ]
    return Case(test.name, model, data, test.rtol, test.atol)


def _arrays(values: Iterable[Any]) -> list[Any]:
    return [_array(value) for value in values]


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _stored(folder: Path, kind: str, declared: Sequence[Any]) -> Iterator[Any]:
    """The values in input_0.pb, input_1.pb, ... of a folder."""
    for number, value in enumerate(declared):
        path = folder / f"{kind}_{number}.pb"
        if not path.exists():
            return
        content = path.read_bytes()
        if value.type.HasField("sequence_type"):
            yield numpy_helper.to_list(onnx.SequenceProto.FromString(content))
        elif value.type.HasField("optional_type"):
            yield numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
        else:
            yield numpy_helper.to_array(onnx.TensorProto.FromString(content))


# ---- running -----------------------------------------------------------------------------------


def run(case: Case, dims: str, bind: bool = False) -> Outcome:
    """Compile a case and compare what it gives; `bind` makes constants of all integer inputs."""
    if excluded(case):
        return Outcome(case.name, dims, "excluded", excluded(case))
    fixed: list[str] = []
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for inputs, expected in case.data:
                model, rest = _bound(case.model, list(inputs), bind)
                prepared = Backend.prepare(model, dims=dims)
                fixed += [f"{name}[{axis}]: {why}" for (name, axis), why in prepared.fixed.items()]
                _compare(case, prepared.run(rest), expected)
    except Exception as error:
        return Outcome(case.name, dims, "failed", _reason(error), tuple(fixed))
    return Outcome(case.name, dims, "passed", "", tuple(fixed))


def excluded(case: Case) -> str:
    """Why a case is not run; nothing when it is."""
    return _fitting(EXCLUDED, case.name)


def bound(case: Case) -> tuple[onnx.ModelProto, list[Any]]:
    """The model of a case with the contents of its attributes, and its other inputs."""
    return _bound(case.model, list(case.data[0][0]), False)


def _bound(
    model: onnx.ModelProto, inputs: list[Any], everything: bool
) -> tuple[onnx.ModelProto, list[Any]]:
    """The model with the contents of inputs that stand for attributes, and the other inputs."""
    names = {
        node.input[position]
        for node in model.graph.node
        for position in KNOWN_AT_COMPILATION.get(node.op_type, {})
        if position < len(node.input)
    }
    constants = {tensor.name for tensor in model.graph.initializer}
    given = [value.name for value in model.graph.input if value.name not in constants]
    if everything:
        integers = [isinstance(v, np.ndarray) and v.dtype.kind in "iu" for v in inputs]
        names |= {name for name, value in zip(given, integers) if value}
    bound = {name: value for name, value in zip(given, inputs) if name in names}
    if not bound:
        return model, inputs
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in bound.items())
    return copy, [value for name, value in zip(given, inputs) if name not in bound]


def _compare(case: Case, made: Sequence[Any], expected: Sequence[Any]) -> None:
    if _fitting(RANDOM, case.name):
        assert [(m.dtype, m.shape) for m in made] == [(e.dtype, e.shape) for e in expected]
        return
    rtol, atol = case.rtol, case.atol
    for pattern, (wider_rtol, wider_atol, _) in TOLERANCES.items():
        if re.fullmatch(pattern, case.name):
            rtol, atol = max(rtol, wider_rtol), max(atol, wider_atol)
    Runner.assert_similar_outputs(expected, made, rtol, atol)


def _fitting(table: dict[str, str], name: str) -> str:
    return next((why for pattern, why in table.items() if re.fullmatch(pattern, name)), "")


def _reason(error: Exception) -> str:
    """One line: what the import lacks, or how the results differ."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if type(error).__name__ == "ModelError" and len(lines) > 1:
        return lines[1].partition(": ")[2] or " ".join(lines)
    if isinstance(error, AssertionError):
        return "wrong result: " + " ".join(lines)[:200]
    return f"{type(error).__name__}: {' '.join(lines)[:200]}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Counts per pass."""
    lines = []
    for dims in PASSES:
        mine = [outcome for outcome in outcomes if outcome.run == dims]
        if mine:
            counts = Counter(outcome.state for outcome in mine)
            partly = sum(bool(o.fixed) and o.state == "passed" for o in mine)
            states = ", ".join(f"{counts[s]} {s}" for s in ("passed", "failed", "excluded"))
            lines.append(f"{dims}: {states} of {len(mine)}"
                         + (f"; {partly} passed with axes that keep their size" if partly else ""))
    return "\n".join(lines)


def known_failures() -> set[tuple[str, str]]:
    """(pass, test) for each line of the list of what is known to fail."""
    lines = FAILURES.read_text("utf-8").splitlines()
    pairs = (line.split("#")[0].split() for line in lines)
    return {(pair[0], pair[1]) for pair in pairs if pair}


def _write(outcomes: Sequence[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.state == "failed"]
    lines = [f"{o.run} {o.case}  # {o.reason}" for o in failed]
    head = "# What fails; made by: python -m tests.conformance.onnx_backend --write"
    FAILURES.write_text("\n".join([head, *lines]) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--operator", help="only tests whose model has this operator")
    parser.add_argument("--match", default="", help="only tests whose name contains this")
    parser.add_argument("--dims", choices=PASSES, help="only this pass")
    parser.add_argument("--list-failures", action="store_true", help="each failure, its reason")
    parser.add_argument("--list-fixed", action="store_true", help="each axis that keeps its size")
    parser.add_argument("--bind", action="store_true", help="integer inputs become constants")
    parser.add_argument("--write", action="store_true", help="note the failures in the list")
    options = parser.parse_args()
    chosen = [
        case
        for case in cases()
        if options.match in case.name
        and (not options.operator
             or any(node.op_type == options.operator for node in case.model.graph.node))
    ]  # fmt: skip
    passes = [options.dims] if options.dims else PASSES
    outcomes = [run(case, dims, options.bind) for case in chosen for dims in passes]
    for outcome in outcomes:
        if options.list_failures and outcome.state == "failed":
            print(f"{outcome.run} {outcome.case}: {outcome.reason}")
        if options.list_fixed:
            for line in outcome.fixed:
                print(f"{outcome.case} {line}")
    if options.write:
        _write(outcomes)
    print(summary(outcomes))


if __name__ == "__main__":
    main()
