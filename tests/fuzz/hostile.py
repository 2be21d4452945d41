"""ONNX models that lie: `python -m tests.fuzz.hostile --count 10000 --seed 0`.

Fields of real small models (the standard's tests of operators) are exchanged for others: ranks,
sizes, types, names, attributes, graphs inside others, functions that call themselves, data that is
declared and not there. Each model is compiled and, where that goes well, called at sizes of its
box, in a process of limited memory and time (`limited.py`). Anything but a UserError or a result
is a failure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx

import anydim as ad
from anydim.base import settings
from anydim.runtime.program.inputs import draw
from tests.fuzz import limited

_INTEGERS = (
    0, 1, 2, 3, 7, -1, -2, 16, 64, 255, 1000, 2**31 - 1, 2**31, -(2**31), 2**32, 10**12, 2**62,
    2**63 - 1, -(2**63), 2**40,
)  # fmt: skip
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
_TEXTS = ("", "x", "y", "nearest", "linear", "../../etc/passwd", "/dev/zero", "a" * 300, "é", "0")
_BYTES = (b"", b"\0", b"\xff" * 7, b"\0" * 64, b"\xff\xfe\xfd", b"NOTSET", b"linear")


# ---- models ------------------------------------------------------------------------------------


@cache
def real_models() -> tuple[bytes, ...]:
    """The models of the standard's tests of operators, small ones."""
    from onnx.backend.test.loader import load_model_tests

    found = (onnx.load(Path(case.model_dir) / "model.onnx") if case.model_dir else case.model
             for case in load_model_tests(kind="node"))  # fmt: skip
    texts = sorted({model.SerializeToString() for model in found if model is not None})
    return tuple(text for text in texts if len(text) < 20_000)


def hostile(seed: int, models: Sequence[bytes]) -> onnx.ModelProto:
    """A model with up to six fields that are others."""
    chance = random.Random(seed)
    model = onnx.load_from_string(chance.choice(models))
    other = onnx.load_from_string(chance.choice(models))
    if chance.random() < 0.5:
        _free(chance, model.graph)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 6))):
        if chance.random() < 0.25:
            chance.choice(_TRICKS)(chance, model, other)
        else:
            _exchange(chance, model, other)
    return model


def _free(chance: random.Random, graph: onnx.GraphProto) -> None:
    """Sizes of inputs become dims."""
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if chance.random() < 0.5:
                dim.dim_param = f"d{axis}"


def _messages(message: Any) -> Iterator[Any]:
    """A message and all inside."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                yield from _messages(inner)


def _exchange(chance: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """A field of any message in it."""
    message = chance.choice(list(_messages(model)))
    fields = [field for field, _ in message.ListFields()] or list(message.DESCRIPTOR.fields)
    if chance.random() < 0.15:
        fields = list(message.DESCRIPTOR.fields)
    field = chance.choice(fields)
    if field.is_repeated:
        _exchange_in_list(chance, getattr(message, field.name), field, model, other)
    elif field.message_type is not None:
        same = _of_kind(chance, model, other, field.message_type.full_name)
        if same is None or chance.random() < 0.3:
            message.ClearField(field.name)
        else:
            getattr(message, field.name).CopyFrom(same)
    else:
        with suppress(ValueError):
            setattr(message, field.name, _scalar(chance, field, model))


def _exchange_in_list(
    chance: random.Random, items: Any, field: Any, model: onnx.ModelProto, other: onnx.ModelProto
) -> None:
    choice, at = chance.randrange(5), chance.randrange(len(items)) if items else 0
    if choice == 0 and items:
        del items[at]
    elif field.message_type is not None:
        same = _of_kind(chance, model, other, field.message_type.full_name)
        if same is None:
            return
        if choice < 3 or not items:
            items.add().CopyFrom(same)
        else:
            items[at].CopyFrom(same)
    else:
        with suppress(ValueError):
            value = _scalar(chance, field, model)
            if choice < 2 or not items:
                items.extend([value] * chance.choice((1, 1, 1, 9)))
            else:
                items[at] = value


def _of_kind(
    chance: random.Random, model: onnx.ModelProto, other: onnx.ModelProto, kind: str
) -> Any:
    """A copy of a message of the same kind from somewhere: of itself, it may hold itself once."""
    source = chance.choice((model, other))
    found = [each for each in _messages(source) if each.DESCRIPTOR.full_name == kind]
    if not found:
        return None
    copy = type(found[0])()
    copy.CopyFrom(chance.choice(found))
    return copy


def _scalar(chance: random.Random, field: Any, model: onnx.ModelProto) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING and field.type == field.TYPE_BYTES:
        return chance.choice(_BYTES)
    if field.cpp_type == field.CPPTYPE_STRING:
        names = [name for node in model.graph.node for name in (*node.input, *node.output)]
        operators = [node.op_type for node in model.graph.node]
        return chance.choice([*_TEXTS, *names, *names, *operators, *_OPERATORS])
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return chance.choice(_FLOATS)
    if field.cpp_type == field.CPPTYPE_ENUM:
        return chance.randrange(0, 20)
    return chance.choice(_INTEGERS)


_OPERATORS = (
    "Loop", "If", "Scan", "Reshape", "Expand", "Tile", "Pad", "Slice", "Resize", "TopK", "Range",
    "ConstantOfShape", "Gather", "Concat", "Split", "Transpose", "Einsum", "Conv", "MaxPool",
    "OneHot", "SequenceAt", "Squeeze", "Unsqueeze", "ScatterND", "CumSum", "LSTM", "Relu",
)  # fmt: skip


# ---- tricks --------------------------------------------------------------------------------------


def _calls_itself(chance: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Functions that call themselves, or each other, or many of each other."""
    depth, width = chance.choice(((1, 1), (2, 1), (30, 2), (200, 1), (12, 10)))
    ring = chance.random() < 0.5
    for number in range(depth):
        inner = (number + 1) % depth if ring else number + 1
        function = model.functions.add()
        function.name, function.domain = f"f{number}", "own"
        function.input.append("a")
        function.output.append(f"b{width - 1}")
        for domain, version in (("", 18), ("own", 1)):
            entry = function.opset_import.add()
            entry.domain, entry.version = domain, version
        for copy in range(width):
            node = function.node.add()
            last = not ring and number == depth - 1
            node.op_type, node.domain = ("Relu", "") if last else (f"f{inner}", "own")
            node.input.append("a" if copy == 0 else f"b{copy - 1}")
            node.output.append(f"b{copy}")
    entry = model.opset_import.add()
    entry.domain, entry.version = "own", 1
    if model.graph.node:
        node = chance.choice(list(model.graph.node))
        node.op_type, node.domain = "f0", "own"
        del node.attribute[:]
        del node.input[1:]
        del node.output[1:]


def _nested(chance: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Graphs inside graphs inside graphs."""
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    for _ in range(chance.choice((1, 3, 40))):
        node = onnx.helper.make_node(chance.choice(("Loop", "If", "Scan")), ["x"], ["y"])
        for name in ("body", "then_branch", "else_branch")[: chance.choice((1, 2, 3))]:
            attribute = node.attribute.add()
            attribute.name, attribute.type = name, onnx.AttributeProto.GRAPH
            attribute.g.CopyFrom(graph)
        del graph.node[1:]
        graph.node.add().CopyFrom(node)
        if graph.ByteSize() > 1 << 20:
            break
    model.graph.CopyFrom(graph)


def _huge(chance: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """A constant that says it is large."""
    if model.graph.initializer:
        tensor = chance.choice(list(model.graph.initializer))
    else:
        tensor = model.graph.initializer.add()
        names = [value.name for value in model.graph.input] or ["w"]
        tensor.name, tensor.data_type = chance.choice(names), chance.randrange(1, 20)
    del tensor.dims[:]
    tensor.dims.extend(chance.choice(_INTEGERS) for _ in range(chance.randrange(4)))


def _outside(chance: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """A constant that lies in a file."""
    tensor = model.graph.initializer.add()
    names = [value.name for value in model.graph.input] or ["w"]
    tensor.name, tensor.data_type = chance.choice(names), 1
    tensor.dims.extend((2, 3))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (
        ("location", chance.choice(("w.bin", "/etc/passwd", "../x", "", "/dev/zero", "."))),
        ("offset", str(chance.choice(_INTEGERS))), ("length", str(chance.choice(_INTEGERS))),
    ):  # fmt: skip
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value


def _circle(chance: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """A node reads what is made from it."""
    nodes = list(model.graph.node)
    if nodes and nodes[0].input and nodes[-1].output:
        nodes[0].input[chance.randrange(len(nodes[0].input))] = nodes[-1].output[0]


def _number(chance: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """An input is a constant vector of extreme numbers."""
    if not model.graph.input:
        return
    value = chance.choice(list(model.graph.input))
    kind = value.type.tensor_type.elem_type
    with suppress(Exception):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
        numbers = _INTEGERS if np.issubdtype(dtype, np.integer) else _FLOATS
        array = np.array([chance.choice(numbers) for _ in range(chance.randrange(5))])
        shape = () if chance.random() < 0.3 else array.shape
        tensor = onnx.numpy_helper.from_array(
            array[:1].reshape(shape).astype(dtype) if shape == () else array.astype(dtype),
            value.name,
        )
        del model.graph.initializer[:]
        model.graph.initializer.add().CopyFrom(tensor)
        model.graph.input.remove(value)


_TRICKS = (_calls_itself, _nested, _huge, _outside, _circle, _number, _number)


# ---- judgement -----------------------------------------------------------------------------------


def outcome(model: onnx.ModelProto, seed: int) -> str:
    """'refused', 'ran', or 'call refused'; what else may happen is raised."""
    chance = np.random.default_rng(seed)
    try:
        compiled = ad.compile(model)
    except ad.UserError:
        return "refused"
    try:
        for _ in range(2):
            sizes = compiled.dims.sample(chance)
            planned = compiled.plan(**sizes)
            if planned.input_bytes > 1 << 28:
                continue
            kinds = compiled.index_ranges
            feeds = {spec.name: draw(spec, sizes, chance, kinds.get(spec.name, (0, 1)))
                     for spec in compiled.inputs}  # fmt: skip
            compiled.limit_time(1.0)
            compiled.executable(feeds)
    except ad.UserError:
        return "call refused"
    return "ran"


@click.command()
@click.option("--count", default=10_000, show_default=True, help="How many models.")
@click.option("--seed", default=0, show_default=True, help="The seed of the first one.")
def main(count: int, seed: int) -> None:
    """Compile hostile models, call what compiles, and count what came of it."""
    models, _ = real_models(), ad.compile  # imports the compiler, once for all children
    with settings.override(compile_threads=1):
        limited.report(run(range(seed, seed + count), models), "models")


def run(seeds: Sequence[int], models: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    """Seeds and outcomes, from child processes."""
    return limited.run(lambda seed: outcome(hostile(seed, models), seed), seeds)


if __name__ == "__main__":
    main()
