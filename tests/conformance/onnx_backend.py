"""The tests that come with onnx, through anydim's Backend, in two passes.

    python -m tests.conformance.onnx_backend                        # everything, a summary
    python -m tests.conformance.onnx_backend --operator Resize --list-failures
    python -m tests.conformance.onnx_backend --write                # note what fails now
    python -m tests.conformance.onnx_backend --write --part 2/8     # of every eighth test
    python -m tests.conformance.onnx_backend --quick --device OPENCL:0 --list-host

In the pass 'free' every axis of every input is a dim of its own before compiling, as far as the
operators allow it; in the pass 'static' the sizes are those that the models declare.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from onnx.reference.ops import op_pool_common

from anydim.api.backend import Backend
from anydim.api.model import Model
from tests.conformance import reference_pools
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

    kind: str  # of KINDS
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

    kind: str
    case: str
    run: str
    state: str
    reason: str = ""
    fixed: tuple[str, ...] = ()
    host: tuple[str, ...] = ()  # what the host computes, though the model is on a device


@lru_cache(maxsize=1)
def cases() -> tuple[Case, ...]:
    """Every test, by kind and name."""
    found: list[Case] = []
    quick = mock.patch.object(op_pool_common, "pool", reference_pools.pool)
    with quick, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for kind in KINDS:
            made = [_case(kind, test) for test in load_model_tests(kind=kind)]
            found += sorted(made, key=lambda case: case.name)
    return tuple(found)


def quick(dims: str) -> tuple[Case, ...]:
    """One test of each operator, and one of those whose model is written in other operators.

    Which one differs from operator to operator, and from pass to pass.
    """
    groups = _groups().values()
    start = PASSES.index(dims)
    return tuple(
        group[(number + start * (len(group) + 1) // 2) % len(group)]
        for number, group in enumerate(groups)
    )


def _groups() -> Mapping[tuple[str, bool], Sequence[Case]]:
    """The tests by (operator, whether the model has the operator's function in its place)."""
    operators = {case.name: case.operator for case in cases()}
    found: dict[tuple[str, bool], list[Case]] = {}
    for case in cases():
        whole = re.sub("_expanded.*", "", case.name)
        expanded = whole != case.name and whole in operators
        found.setdefault((operators[whole if expanded else case.name], expanded), []).append(case)
    return found


def _case(kind: str, test: Any) -> Case:
    if test.model is not None:
        data = [tuple(map(_arrays, pair)) for pair in test.data_sets]
        return Case(kind, test.name, test.model, data, test.rtol, test.atol)
    folder = Path(test.model_dir)
    model = onnx.load(str(folder / "model.onnx"))
    data = [
        (
            list(_stored(part, "input", model.graph.input)),
            list(_stored(part, "output", model.graph.output)),
        )
        for part in sorted(folder.glob("test_data_set*"))
    ]
    return Case(kind, test.name, model, data, test.rtol, test.atol)


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


def run(case: Case, dims: str, bind: bool = False, device: str = "CPU") -> Outcome:
    """Compile a case and compare what it gives; `bind` makes constants of all integer inputs."""
    if excluded(case):
        return Outcome(case.kind, case.name, dims, "excluded", excluded(case))
    fixed: list[str] = []
    host: list[str] = []
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for inputs, expected in case.data:
                model, rest = bound_to(case.model, list(inputs), bind)
                prepared = Backend.prepare(model, device, dims=dims)
                fixed += [f"{name}[{axis}]: {why}" for (name, axis), why in prepared.fixed.items()]
                host += on_host(prepared.model)
                _compare(case, prepared.run(rest), expected)
    except Exception as error:
        return Outcome(case.kind, case.name, dims, "failed", reason_of(error), tuple(fixed))
    return Outcome(case.kind, case.name, dims, "passed", "", tuple(fixed), tuple(host))


def on_host(model: Model) -> list[str]:
    """What a model launches on the host, and what it does with strings."""
    if model.on_strings:
        return ["strings", *(on_host(model.bare) if model.adapter.native else ())]
    sites = (
        site for segment in model.program.segments if not segment.device for site in segment.sites
    )
    return [site.source for site in sites]  # fmt: skip


def excluded(case: Case) -> str:
    """Why a case is not run; nothing when it is."""
    return _fitting(EXCLUDED, case.name)


def bound(case: Case) -> tuple[onnx.ModelProto, list[Any]]:
    """The model of a case with the contents of its attributes, and its other inputs."""
    return bound_to(case.model, list(case.data[0][0]), False)


def bound_to(
    model: onnx.ModelProto, inputs: list[Any], everything: bool = False
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
    if is_random(case.name):
        assert [(m.dtype, m.shape) for m in made] == [(e.dtype, e.shape) for e in expected]
        return
    rtol, atol = case.rtol, case.atol
    for pattern, (wider_rtol, wider_atol, _) in TOLERANCES.items():
        if re.fullmatch(pattern, case.name):
            rtol, atol = max(rtol, wider_rtol), max(atol, wider_atol)
    Runner.assert_similar_outputs(expected, made, rtol, atol)


def is_random(name: str) -> bool:
    """Whether the results of a test are random numbers."""
    return bool(_fitting(RANDOM, name))


def _fitting(table: dict[str, str], name: str) -> str:
    return next((why for pattern, why in table.items() if re.fullmatch(pattern, name)), "")


def reason_of(error: Exception) -> str:
    """One line: what the import lacks, or how the results differ."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if type(error).__name__ == "ModelError" and len(lines) > 1:
        return lines[1].partition(": ")[2] or " ".join(lines)
    if isinstance(error, AssertionError):
        return "wrong result: " + " ".join(lines)[:200]
    return f"{type(error).__name__}: {' '.join(lines)[:200]}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Counts per pass, and in it per kind of test."""
    lines = []
    for dims in PASSES:
        mine = [outcome for outcome in outcomes if outcome.run == dims]
        if mine:
            partly = sum(bool(o.fixed) and o.state == "passed" for o in mine)
            lines.append(
                _counts(dims, mine)
                + (f"; {partly} passed with axes that keep their size" if partly else "")
            )
            for kind in KINDS:
                own = [outcome for outcome in mine if outcome.kind == kind]
                lines += [f"  {_counts(kind, own)}"] * bool(own)
    return "\n".join(lines)


def _counts(label: str, outcomes: Sequence[Outcome]) -> str:
    counts = Counter(outcome.state for outcome in outcomes)
    states = ", ".join(f"{counts[state]} {state}" for state in ("passed", "failed", "excluded"))
    return f"{label}: {states} of {len(outcomes)}"


def share(outcomes: Sequence[Outcome]) -> str:
    """How many node tests run on a device: those that pass and compute nothing on the host."""
    nodes = [each for each in outcomes if each.kind == "node" and each.state != "excluded"]
    there = sum(each.state == "passed" and not each.host for each in nodes)
    return f"wholly on the device: {there} of {len(nodes)} node tests, {there / len(nodes):.1%}"


def known_failures() -> dict[tuple[str, str], str]:
    """(pass, test) -> reason for each line of the list of what is known to fail."""
    found = {}
    for line in FAILURES.read_text("utf-8").splitlines():
        left, _, reason = line.partition("#")
        if left.strip():
            dims, name = left.split()
            found[dims, name] = reason.strip()
    return found


def _write(outcomes: Sequence[Outcome]) -> None:
    """Note what fails. What was not run keeps its line, a reason what was written behind it."""
    known = known_failures()
    run = {(outcome.run, outcome.case) for outcome in outcomes}
    lines = {key: reason for key, reason in known.items() if key not in run}
    for outcome in outcomes:
        if outcome.state == "failed":
            before = known.get((outcome.run, outcome.case), "")
            kept = before if before.startswith(outcome.reason) else outcome.reason
            lines[outcome.run, outcome.case] = kept
    order = [(dims, case.name) for dims in PASSES for case in cases()]
    head = "# What fails; made by: python -m tests.conformance.onnx_backend --write"
    body = [
        f"{dims} {name}  # {lines[dims, name]}" for dims, name in order if (dims, name) in lines
    ]
    FAILURES.write_text("\n".join([head, *body]) + "\n", "utf-8")


def part_of(text: str) -> tuple[int, int]:
    """'2/8' as (which part, of how many)."""
    number, _, count = text.partition("/")
    if not 1 <= int(number) <= int(count):
        raise ValueError(text)
    return int(number), int(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--operator", help="only tests whose model has this operator")
    parser.add_argument("--match", default="", help="only tests whose name contains this")
    parser.add_argument("--dims", choices=PASSES, help="only this pass")
    parser.add_argument("--part", type=part_of, default=(1, 1), help="2/8: every 8th, from the 2nd")
    parser.add_argument("--list-failures", action="store_true", help="each failure, its reason")
    parser.add_argument("--list-fixed", action="store_true", help="each axis that keeps its size")
    parser.add_argument("--quick", action="store_true", help="one test of each operator")
    parser.add_argument("--device", default="CPU", help="what computes: CPU, OPENCL:0")
    parser.add_argument("--list-host", action="store_true", help="what falls to the host")
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
    number, count = options.part
    chosen = chosen[number - 1 :: count]
    passes = [options.dims] if options.dims else PASSES
    wanted = {dims: {case.name for case in quick(dims)} for dims in passes if options.quick}
    outcomes = [
        run(case, dims, options.bind, options.device)
        for case in chosen
        for dims in passes
        if not options.quick or case.name in wanted[dims]
    ]
    for outcome in outcomes:
        if options.list_failures and outcome.state == "failed":
            print(f"{outcome.run} {outcome.case}: {outcome.reason}")
        if options.list_fixed:
            for line in outcome.fixed:
                print(f"{outcome.case} {line}")
        if options.list_host and outcome.host:
            print(f"{outcome.run} {outcome.case} on the host: {', '.join(outcome.host)}")
    if options.write:
        _write(outcomes)
    print(summary(outcomes))
    if options.device != "CPU":
        print(share(outcomes))


if __name__ == "__main__":
    main()
