"""Every operator in every element type that its schema allows.

    python -m tests.conformance.element_types                        # the whole walk, a summary
    python -m tests.conformance.element_types --operator LSTM --list
    python -m tests.conformance.element_types --part 2/8

A sample is a model of one node with inputs: tests of onnx, rows of our own. A variation changes
the type of all inputs that share a type parameter of the schema, to each type that it allows. Each
is compiled with free sizes, and right beside onnx's reference evaluator: in the types themselves,
or for 16-bit floats in the sample's type. What is refused stands in element_type_refusals.txt.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from anydim.api.backend import Backend
from anydim.base.errors import UserError
from tests.conformance import onnx_backend
from tests.conformance.onnx_backend import part_of

REFUSALS = Path(__file__).with_name("element_type_refusals.txt")
NAMES = {
    "float": "FLOAT", "double": "DOUBLE", "float4e2m1": "FLOAT4E2M1",
    **{name: name.upper() for name in (
        "float16", "bfloat16", "int64", "int32", "int16", "int8", "int4", "int2", "uint64",
        "uint32", "uint16", "uint8", "uint4", "uint2", "bool", "float8e4m3fn", "float8e4m3fnuz",
        "float8e5m2", "float8e5m2fnuz", "float8e8m0", "string", "complex64", "complex128",
    )},
}  # fmt: skip
"""Types as a schema writes them -> as onnx numbers them."""
UNITS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Of what results may be apart; of other types that of the evaluator, which has float32 inside."""
SKIPPED = {
    "SequenceMap": "its body is written in types of its own, which a variation does not change",
}
SAMPLES = 2  # of an operator: the one with the fewest inputs and attributes, and with the most


@dataclass(frozen=True, eq=False)
class Sample:
    """A model of one node, and what it is called with."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[Any, ...]

    @property
    def node(self) -> onnx.NodeProto:
        return self.model.graph.node[0]

    @property
    def operator(self) -> str:
        domain = self.node.domain
        return f"{domain}.{self.node.op_type}" if domain else self.node.op_type

    @property
    def schema(self) -> Any:
        domain = self.node.domain
        versions = [each.version for each in self.model.opset_import if each.domain == domain]
        return onnx.defs.get_schema(self.node.op_type, versions[0], domain)


@dataclass(frozen=True)
class Variation:
    """A sample whose inputs of a type parameter (several, for lists) are of another type."""

    sample: Sample
    parameter: str
    type: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.sample.operator, self.parameter, self.type


@dataclass(frozen=True)
class Outcome:
    """What became of a variation: right, unchecked, refused, wrong or broken."""

    variation: Variation
    state: str
    reason: str = ""


# ---- what there is -----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def samples() -> Mapping[str, tuple[Sample, ...]]:
    """By operator; few of each, unlike in what they are given."""
    found: dict[str, list[Sample]] = {}
    known = onnx_backend.known_failures()
    for case in onnx_backend.cases():
        nodes = case.model.graph.node
        if case.kind != "node" or len(nodes) != 1 or "_expanded" in case.name:
            continue
        if onnx_backend.excluded(case) or not case.data or ("free", case.name) in known:
            continue
        if case.operator in SKIPPED:
            continue
        sample = Sample(case.name, case.model, tuple(case.data[0][0]))
        found.setdefault(sample.operator, []).append(sample)
    return {operator: _apart(each) for operator, each in found.items()}


def _apart(every: Sequence[Sample]) -> tuple[Sample, ...]:
    order = sorted(every, key=lambda s: (len(s.node.input) + len(s.node.attribute), s.name))
    return tuple(dict.fromkeys((order[-1], order[0])))[:SAMPLES]


def variations() -> Iterator[Variation]:
    """Every type of every type parameter of every operator."""
    for every in samples().values():
        for sample in every:
            for parameter, types in _types(sample).items():
                yield from (Variation(sample, parameter, kind) for kind in types)


def _types(sample: Sample) -> Mapping[str, Sequence[str]]:
    """The element types of each type parameter that an input has."""
    given = set(_parameters(sample).values())
    return {name: kinds for name, kinds in _all_types(sample).items() if name in given}


def _all_types(sample: Sample) -> Mapping[str, Sequence[str]]:
    """The element types of each type parameter."""
    allowed: dict[str, list[str]] = {}
    for constraint in sample.schema.type_constraints:
        kinds = dict.fromkeys(_element(text) for text in constraint.allowed_type_strs)
        allowed[constraint.type_param_str] = [kind for kind in kinds if kind in NAMES]
    return allowed


def _element(text: str) -> str:
    return text.rsplit("(", 1)[-1].rstrip(")")


def _parameters(sample: Sample) -> dict[str, str]:
    """Input of the graph -> the type parameter of the schema that it has."""
    formal = sample.schema.inputs
    found = {}
    for position, name in enumerate(sample.node.input):
        parameter = formal[min(position, len(formal) - 1)]
        if name and parameter.is_homogeneous:
            found[name] = parameter.type_str
    return {value.name: found[value.name] for value in sample.model.graph.input
            if value.name in found}  # fmt: skip


# ---- one variation -----------------------------------------------------------------------------


def varied(variation: Variation) -> tuple[onnx.ModelProto, list[Any]]:
    """The model with other types, and its inputs converted."""
    sample = variation.sample
    model = onnx.ModelProto()
    model.CopyFrom(sample.model)
    parameters = _parameters(sample)
    declared = {value.name: value.type for value in model.graph.input}
    chosen = {name for name, each in parameters.items() if each == variation.parameter}
    before = {_element_of(declared[name]) for name in chosen}
    wanted = getattr(TensorProto, NAMES[variation.type])
    if any(not declared[name].HasField("tensor_type") for name in parameters):
        # a list, what goes into it, and graphs that work on its elements are of one type
        allowed = _all_types(sample)
        chosen = {
            name for name, parameter in parameters.items()
            if _element_of(declared[name]) in before and variation.type in allowed[parameter]
        }  # fmt: skip
    inputs = []
    for value, given in zip(model.graph.input, sample.inputs):
        if value.name in chosen:
            _retype(value.type, wanted)
            given = _converted(given, variation.type, sample.operator)
        inputs.append(given)
    for attribute in model.graph.node[0].attribute:
        for value in (*attribute.g.input, *attribute.g.output):
            if _element_of(value.type) in before:
                _retype(value.type, wanted)
        if attribute.HasField("t") and attribute.t.data_type in before:
            array = _converted(numpy_helper.to_array(attribute.t), variation.type)
            attribute.t.CopyFrom(numpy_helper.from_array(array, attribute.t.name))
    for value in model.graph.output:
        value.ClearField("type")
    return model, inputs


def _element_of(kind: Any) -> int:
    field = kind.WhichOneof("value")
    if field in (None, "tensor_type"):
        return int(kind.tensor_type.elem_type)
    return _element_of(getattr(kind, field).elem_type)


def _retype(kind: Any, element: int) -> None:
    field = kind.WhichOneof("value")
    if field == "tensor_type":
        kind.tensor_type.elem_type = element
    else:
        _retype(getattr(kind, field).elem_type, element)


def _converted(given: Any, kind: str, operator: str = "") -> Any:
    """Values of another type: distinct ones stay so as far as it has them."""
    if given is None or isinstance(given, list):
        return given if given is None else [_converted(each, kind) for each in given]
    array = np.asarray(given)
    if kind == "string":
        numbers = array.astype(np.float32) if array.dtype.isbuiltin == 2 else array
        return numbers.astype(str).astype(object)
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, NAMES[kind]))
    if array.dtype == dtype:
        return array
    if array.dtype.isbuiltin == 2:  # numpy converts few of these into each other
        array = array.astype(np.float32)
    if array.dtype.kind in "UTO":
        array = np.arange(array.size).reshape(array.shape)
    if dtype.kind == "b":
        return array > 0
    if _is_integer(dtype):
        if array.dtype.kind not in "iub":
            array = np.rint(np.nan_to_num(array.astype(np.float64), posinf=9, neginf=-9) * 3)
        info = ml_dtypes.iinfo(dtype)
        low = max(int(info.min), -(2**62))
        array = np.clip(np.abs(array) if low == 0 else array, low, min(int(info.max), 2**62))
    return array.astype(dtype)


def _is_integer(dtype: np.dtype) -> bool:
    return dtype.name.startswith(("int", "uint"))


def run(variation: Variation) -> Outcome:
    """Compile a variation with free sizes, and compare what it gives."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model, inputs = varied(variation)
            inputs = _defined(variation, inputs)
            bound, rest = onnx_backend.bound_to(model, inputs)
            made = Backend.prepare(bound, dims="free").run(rest)
        except UserError as error:
            return Outcome(variation, "refused", onnx_backend.reason_of(error))
        except Exception as error:
            return Outcome(variation, "broken", f"{type(error).__name__}: {error}"[:300])
        try:
            right = _right(variation, model, inputs)
        except Exception as error:  # whatever the evaluator lacks
            return Outcome(variation, "unchecked", f"{type(error).__name__}: {error}"[:200])
        try:
            kinds = _result_types(variation, model)
            if onnx_backend.is_random(variation.sample.name):
                right = [np.asarray(got) for got in made]
            for got, expected, kind in zip(made, right, kinds, strict=True):
                _compare(got, expected, kind, variation)
        except AssertionError as error:
            return Outcome(variation, "wrong", " ".join(f"{error}".split())[:300])
    return Outcome(variation, "right")


def _defined(variation: Variation, inputs: Sequence[Any]) -> list[Any]:
    """Inputs of conversions that every type has: what becomes of others is nobody's rule."""
    if variation.sample.operator not in ("Cast", "CastLike"):
        return list(inputs)
    first, *rest = inputs
    if isinstance(first, np.ndarray) and first.dtype.kind not in "UTO":
        few = (np.arange(first.size) % 2).reshape(first.shape)
        if variation.type == "float8e8m0":
            few = few + 1  # there is no 0
        first = few.astype(first.dtype)
    return [first, *rest]


def _right(variation: Variation, model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    """What the standard's evaluator makes of it; of 16-bit floats in the type of the sample."""
    if variation.type in ("float16", "bfloat16"):
        wide, held = "float", any(a.HasField("t") for a in variation.sample.node.attribute)
        other = Variation(variation.sample, variation.parameter, wide)
        plain = variation.sample.operator not in ("Cast", "CastLike") and not held
        if plain and wide in _types(variation.sample)[variation.parameter]:
            model, _ = varied(other)
            narrow = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
            inputs = [
                value.astype(np.float32)
                if isinstance(value, np.ndarray) and value.dtype in narrow else value
                for value in inputs
            ]  # fmt: skip
    for given in inputs:
        if isinstance(given, np.ndarray) and given.dtype.name.startswith("float8"):
            if variation.sample.operator in ("QLinearMatMul", "DequantizeLinear"):
                raise TypeError("the evaluator takes integers")
    names = [value.name for value in model.graph.input]
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))


def _result_types(variation: Variation, model: onnx.ModelProto) -> list[int]:
    """The element types of results as onnx infers them; 0 for what is no tensor, and for a type
    that the schema does not allow there."""
    found = onnx.shape_inference.infer_shapes(model)
    schema = variation.sample.schema
    allowed = {
        each.type_param_str: {NAMES.get(_element(text)) for text in each.allowed_type_strs}
        for each in schema.type_constraints
    }
    parameters = _parameters(variation.sample)
    own = {
        parameters[value.name]: _element_of(value.type)
        for value in model.graph.input if value.name in parameters
    }  # fmt: skip
    kinds = []
    for number, value in enumerate(found.graph.output):
        formal = schema.outputs[min(number, len(schema.outputs) - 1)]
        inferred = value.type.tensor_type.elem_type
        kind = own.get(formal.type_str, inferred) if inferred else 0
        named = TensorProto.DataType.Name(kind)
        fits = named in allowed.get(formal.type_str, {named})
        kinds.append(kind if fits or not formal.is_homogeneous else 0)
    return kinds


def _compare(got: Any, expected: Any, kind: int, variation: Variation) -> None:
    if isinstance(expected, list):
        assert len(got) == len(expected)
        for one, other in zip(got, expected):
            _compare(one, other, 0, variation)
        return
    got, expected = np.asarray(got), np.asarray(expected)
    if kind and kind != TensorProto.STRING:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        assert got.dtype == dtype, f"{got.dtype}, expected {dtype}"
    assert got.shape == expected.shape, f"shape {got.shape}, expected {expected.shape}"
    if got.dtype.kind in "UTO":
        np.testing.assert_array_equal(got.astype(str), expected.astype(str))
        return
    if got.dtype == bool or _is_integer(got.dtype):
        np.testing.assert_array_equal(got.astype(object), expected.astype(object))
        return
    if expected.dtype != got.dtype:
        expected = expected.astype(got.dtype)
    unit = max(UNITS.get(variation.type, 2.0**-20), float(ml_dtypes.finfo(got.dtype).eps))
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(expected[np.isfinite(expected)])
    largest = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(got, expected, rtol=4 * unit, atol=2 * unit * min(largest, 1.0))


# ---- what is refused ---------------------------------------------------------------------------


def known_refusals() -> dict[tuple[str, str, str], str]:
    """(operator, type parameter, type) -> why, for each line of the list; `*`: any."""
    found = {}
    for line in REFUSALS.read_text("utf-8").splitlines():
        left, _, reason = line.partition("#")
        if left.strip():
            operator, parameter, kinds = left.split()
            found.update({(operator, parameter, kind): reason.strip()
                          for kind in kinds.split(",")})  # fmt: skip
    return found


def unexpected(outcomes: Sequence[Outcome]) -> list[str]:
    """Lines for what is wrong or broken, refused and not in the list, or in it and not refused."""
    known, lines = known_refusals(), []
    for outcome in outcomes:
        key, where = outcome.variation.key, " ".join(outcome.variation.key)
        where += f" ({outcome.variation.sample.name})"
        if outcome.state in ("wrong", "broken"):
            lines.append(f"{where}: {outcome.state}: {outcome.reason}")
        elif outcome.state == "refused" and not _is_known(key, known):
            lines.append(f"{where}: refused: {outcome.reason}")
    refused = {o.variation.key for o in outcomes if o.state in ("refused", "unchecked")}
    run = {o.variation.key for o in outcomes}
    lines += [f"{' '.join(key)} is not refused: take it off the list"
              for key in sorted(known.keys() & run - refused)]  # fmt: skip
    return lines


def _is_known(key: tuple[str, str, str], known: Mapping[tuple[str, str, str], str]) -> bool:
    return key in known or ("*", "*", key[2]) in known


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--operator", help="only this one")
    parser.add_argument("--type", help="only this type")
    parser.add_argument("--part", type=part_of, default=(1, 1), help="2/8: every 8th, from the 2nd")
    parser.add_argument("--list", action="store_true", help="every variation, what became of it")
    options = parser.parse_args()
    chosen = [
        each for each in variations()
        if (not options.operator or each.sample.operator == options.operator)
        and (not options.type or each.type == options.type)
    ]  # fmt: skip
    number, count = options.part
    outcomes = []
    for variation in chosen[number - 1 :: count]:
        outcome = run(variation)
        outcomes.append(outcome)
        if options.list or outcome.state in ("wrong", "broken"):
            where = f"{' '.join(variation.key)} {variation.sample.name}"
            print(f"{outcome.state} {where}: {outcome.reason}", flush=True)
    if not (options.operator or options.type or count > 1):
        print("\n".join(unexpected(outcomes)))
    counts = Counter(outcome.state for outcome in outcomes)
    print(", ".join(f"{count} {state}" for state, count in counts.items()), f"of {len(outcomes)}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
