"""Promise: what a compile does grows with its model, however values are read or sizes nest."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import anydim as ad
from anydim.compiler.frontends.table import read
from anydim.compiler.native.emit import emit
from anydim.compiler.passes.assemble import Assemble
from anydim.compiler.passes.fuse import Fuse
from anydim.compiler.passes.lower import Lower
from anydim.compiler.passes.schedule import Schedule, Scheduled
from anydim.compiler.passes.simplify import Simplify
from anydim.compiler.targets.targets import target
from anydim.sizes import Box, Dim, Size, bounds, simplify


def test_what_is_added_to_itself_again_and_again() -> None:
    """Read twice each, 40 values would be computed 2**40 times without being kept."""
    graph = ad.Builder("residual")
    value = graph.input("x", ad.float32, (graph.dim("n", 0, 100), 8))
    for _ in range(40):
        value = graph.add(value, graph.abs(value))
    graph.output("y", value)
    data = numpy.linspace(-3, 3, 24, dtype=numpy.float32).reshape(3, 8)
    expected = numpy.maximum(data, 0) * numpy.float32(2**40)
    numpy.testing.assert_array_equal(ad.compile(graph)(data)["y"], expected)


def test_what_is_joined_is_added_to_itself_again_and_again() -> None:
    """The same behind a concatenation, which is cut into ranges."""
    graph = ad.Builder("joined")
    value = x = graph.input("x", ad.float32, (graph.dim("n", 0, 100), 8))
    value = graph.concat(x, graph.neg(x), axis=1)
    for _ in range(40):
        value = graph.add(value, graph.abs(value))
    graph.output("y", value)
    data = numpy.linspace(-3, 3, 24, dtype=numpy.float32).reshape(3, 8)
    both = numpy.concatenate([data, -data], axis=1)
    expected = numpy.maximum(both, 0) * numpy.float32(2**40)
    numpy.testing.assert_array_equal(ad.compile(graph)(data)["y"], expected)


def test_a_template_is_not_asked_about_every_longer_chain() -> None:
    """What works element for element on a chain that is taken makes a chain that is taken."""
    graph = ad.Builder("unlike")
    value = x = graph.input("x", ad.float32, (graph.dim("n", 0, 100), 8))
    for number in range(45):
        value = graph.add(graph.abs(value), numpy.float32(number))
        value = graph.mul(value, x) if number == 30 else value
    graph.output("y", value)
    code, asked = target("llvm"), 0

    def match(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return code.templates[-1].match(*arguments)

    def fused(**changed: Any) -> tuple[Any, ...]:
        nonlocal asked
        asked = 0
        templates = (*code.templates[:-1], replace(code.templates[-1], match=match, **changed))
        lowered = Simplify().run(Lower().run(read(graph, None, None)))
        return Fuse(code.machine, templates).run(lowered).nodes

    grown = fused()
    assert asked < 20
    assert fused(extends=False) == grown
    assert asked > 80


def pools(count: int, stride: int = 2) -> onnx.ModelProto:
    """So many pools inside each other, of free height and width."""
    names = ["x", *(f"v{number}" for number in range(count))]
    attributes = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": [1, 1, 1, 1]}
    nodes = [
        onnx.helper.make_node("MaxPool", [source], [target], **attributes)
        for source, target in pairwise(names)
    ]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2, "h", "w"])
    y = onnx.helper.make_tensor_value_info(names[-1], onnx.TensorProto.FLOAT, None)
    return onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y]))


def test_three_hundred_pools_inside_each_other() -> None:
    """Halved so often, a size would be divided by a number that no machine has."""
    graph = read(pools(300), None, None)
    height = graph.types[graph.outputs[0]].shape[2]
    assert height.depth < 8
    assert [height.evaluate({"h": h}) for h in (0, 1, 2, 2**62)] == [0, 1, 1, 1]


def test_pools_are_compiled() -> None:
    data = numpy.random.default_rng(0).standard_normal((2, 2, 9, 70), numpy.float32)
    (found,) = ad.compile(pools(3, stride=2**30))(data).values()
    expected = data[:, :, :2, :2].max(axis=(2, 3), keepdims=True)
    numpy.testing.assert_array_equal(found, expected)


def test_a_convolution_of_dims_with_long_names_is_compiled() -> None:
    """Places of 2 x 2 windows with padding are a sum of products: what is made of them is long."""
    numbers, dims = numpy.random.default_rng(0), [f"p2o.DynamicDimension.{n}" for n in range(3)]
    weights = numbers.standard_normal((8, 3, 2, 2)).astype("float32")
    attributes = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [dims[0], 3, *dims[1:]])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    constants = [onnx.numpy_helper.from_array(weights, "w")]
    made = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y], constants))
    model, reference = ad.compile(made), ReferenceEvaluator(made)
    for shape in ((1, 3, 9, 11), (20, 3, 2, 3), (0, 3, 4, 4), (3, 3, 1, 40)):
        data = numbers.standard_normal(shape).astype("float32")
        (expected,) = reference.run(None, {"x": data})
        numpy.testing.assert_allclose(model(data)["y"], expected, rtol=1e-5, atol=1e-5)


def deep_size(levels: int) -> Size:
    """A size that no rule flattens and that holds each part of itself twice."""
    size = Size.symbol("n")
    for _ in range(levels):
        size = 2 * size // 3 + 1
    return size


def test_deep_sizes_are_gone_through_without_recursion() -> None:
    size, box = deep_size(900), Box.of(Dim("n", 0, 100))
    value = 17
    for _ in range(900):
        value = 2 * value // 3 + 1
    assert size.evaluate({"n": 17}) == value
    assert size.substitute({"n": Size.symbol("m")}).evaluate({"m": 17}) == value
    assert simplify(size, box).evaluate({"n": 17}) == value
    assert value in bounds(size, box)
    assert size.fold(int, lambda name: 17, apply_numbers) == value


def apply_numbers(function: str, parts: tuple[int, ...]) -> int:
    left, right = parts
    return {"add": left + right, "mul": left * right}.get(function, left // max(1, right))


def test_sizes_that_double_are_refused_before_they_fill_memory() -> None:
    size = power = Size.symbol("n")
    with pytest.raises(ad.DimError, match="characters and is nested"):
        for number in range(60):
            size = (size * size + number) // 3
    with pytest.raises(ad.DimError, match="a product of 2048 factors, above the limit 1024"):
        for _ in range(60):
            power = power * power


def test_functions_that_call_each_other_twice_have_a_limit() -> None:
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("own", 1)]
    names = [("", "Relu"), *(("own", f"f{level}") for level in range(40))]
    functions = []
    for (domain, inner), (_, name) in pairwise(names):
        halves = (("x", "half"), ("half", "y"))
        calls = [onnx.helper.make_node(inner, [a], [b], domain=domain) for a, b in halves]
        functions.append(onnx.helper.make_function("own", name, ["x"], ["y"], calls, opsets))
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy"
    )
    top = onnx.helper.make_node("f39", ["x"], ["y"], "top", domain="own")
    graph = onnx.helper.make_graph([top], "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=opsets, functions=functions)
    with pytest.raises(ad.ModelError, match=r"'top': function 'f39' .* above the limit 100000"):
        ad.compile(model)


def halved(data: numpy.ndarray, times: int) -> numpy.ndarray:
    """Pools of windows of 3 x 3 at every second place, so often."""
    for _ in range(times):
        rows, columns = (-(-size // 2) for size in data.shape[2:])
        wide = numpy.full((*data.shape[:2], 2 * rows + 3, 2 * columns + 3), -numpy.inf, "float32")
        wide[:, :, 1 : 1 + data.shape[2], 1 : 1 + data.shape[3]] = data
        windows = numpy.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
        data = windows[:, :, : 2 * rows : 2, : 2 * columns : 2].max(axis=(4, 5))
    return data


def test_a_template_is_asked_once_about_poolings_inside_each_other() -> None:
    code = target("llvm")

    def asked(count: int) -> int:
        questions = 0

        def match(*arguments: Any) -> Any:
            nonlocal questions
            questions += 1
            return code.templates[0].match(*arguments)

        templates = (replace(code.templates[0], match=match), *code.templates[1:])
        graph = Simplify().run(Lower().run(read(pools(count), None, None)))
        fused = Fuse(code.machine, templates).run(graph)
        items = Schedule(code.machine, templates).run(fused)
        launches = [item.launch for item in items if isinstance(item, Scheduled)]
        assert len(launches) == count
        assert len({launch.kernel.name for launch in launches}) == 1
        return questions

    assert asked(60) == asked(20)


def test_the_memory_of_poolings_inside_each_other_is_a_short_formula() -> None:
    """What is left of an image is never above what it was, whatever it was."""
    model = ad.compile(pools(120))
    assert len(str(model.memory.bytes)) < 1000
    data = numpy.random.default_rng(1).standard_normal((2, 2, 37, 301), numpy.float32)
    for image in (data, data[:, :, :1], data[:, :, :, :0], data[:1, :, :9, :8]):
        (found,) = model(image).values()
        numpy.testing.assert_array_equal(found, halved(image, 120))


def test_no_function_of_host_code_grows_with_the_program() -> None:
    def longest(count: int) -> int:
        graph = read(pools(count), None, None)
        code = target("llvm")
        fused = Fuse(code.machine, code.templates).run(Simplify().run(Lower().run(graph)))
        items = Schedule(code.machine, code.templates).run(fused)
        host = emit(Assemble(2).run(fused, items))
        functions = host.code.functions
        return max(len(function.body) for function in functions)

    assert longest(180) <= longest(110) + 10
