"""Promise: sizes that a model uses as data have the type that the file gives them, and wrap in it.

However a model is called, and whether a dim is free or fixed, the values are those of onnx's
reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx.reference import ReferenceEvaluator

import anydim as ad
import anydim.ort
from anydim.base.errors import DimError, InputError, ModelError
from anydim.cli.app import main
from anydim.compiler.frontends.onnx import import_model
from anydim.compiler.graph.nodes import Graph

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
TYPES = {"uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7}


@dataclass(frozen=True)
class Case:
    """What a model makes of the shape s of x, and what that is at one size."""

    text: str
    sizes: tuple[int, ...]
    expected: list[int] | int  # values, or how many there are

    @property
    def proto(self) -> onnx.ModelProto:
        dims = ", ".join("nmk"[: len(self.sizes)])
        text, made = self.text, self.text.rsplit("y = ", 1)[1]
        for name, number in TYPES.items():
            text = text.replace(f"as {name}(", f"Cast <to = {number}> (")
        kind = "int8" if made.startswith("Expand") else "int16" if "Range" in made else "int64"
        constants = "int64 zero = {0}, int64 one = {1}, int16 z16 = {0}, int16 o16 = {1}, "
        constants += "int32 seven = {7}, int64[1] huge = {4611686018427387904}, int8[1] i = {1}"
        graph = f"g (int8[{dims}] x) => ({kind} y) <{constants}> {{ s = Shape(x) {text} }}"
        proto = onnx.parser.parse_model(HEAD + graph)
        proto.graph.output[0].type.tensor_type.ClearField("shape")
        return proto


CASES = {
    "expand to uint8": Case("a = as uint8(s) b = as int64(a) y = Expand(i, b)", (300,), 44),
    "int8 and back": Case("a = as int8(s) y = as int64(a)", (200,), [-56]),
    "uint8 of 3 - 5": Case(
        "a = as uint8(s) n = Gather(a, zero) m = Gather(a, one) b = Sub(n, m) y = as int64(b)",
        (3, 5), [254],
    ),
    "int32 squared": Case(
        "a = as int32(s) b = Mul(a, a) y = as int64(b)", (50_000,), [-1794967296]
    ),
    "int32 cubed, by 7": Case(
        "a = as int32(s) b = Mul(a, a) c = Mul(b, a) d = Div(c, seven) y = as int64(d)",
        (2000,), [-84276370],
    ),
    "range to int16": Case(
        "a = as int16(s) n = Gather(a, zero) y = Range(z16, n, o16)", (65541,), 5
    ),
    "int64 by 2**62": Case("y = Mul(s, huge)", (5,), [1 << 62]),
    "int32 squared as a size": Case(
        "a = as int32(s) b = Mul(a, a) c = as int64(b) y = Expand(i, c)", (65537,), 131073
    ),
    "int32 and back": Case(
        "a = as int32(s) y = as int64(a)", (0, (1 << 31) + 5), [0, 5 - (1 << 31)]
    ),
}  # fmt: skip


def reference(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(ReferenceEvaluator(proto).run(None, {"x": x})[0])


def same(came: np.ndarray, expected: np.ndarray) -> None:
    assert (came.dtype, came.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(came, expected)


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("name", CASES)
def test_every_way_to_call(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    proto, x = case.proto, np.zeros(case.sizes, np.int8)
    expected = reference(proto, x)
    if isinstance(case.expected, int):
        assert expected.size == case.expected
    else:
        assert expected.reshape(-1).tolist() == case.expected
    model = ad.compile(proto)
    same(model(x)["y"], expected)
    model.save(tmp_path / "saved.anydim")
    same(ad.load(tmp_path / "saved.anydim")(x)["y"], expected)
    onnx.save(proto, tmp_path / "model.onnx")
    session = anydim.ort.InferenceSession(str(tmp_path / "model.onnx"))
    same(session.run(None, {"x": x})[0], expected)
    np.save(tmp_path / "x.npy", x)
    words = ["run", str(tmp_path / "model.onnx"), "--input", f"x={tmp_path / 'x.npy'}"]
    result = CliRunner().invoke(main, [*words, "--output", str(tmp_path / "out.npz")])
    assert result.exit_code == 0, result.output
    same(np.load(tmp_path / "out.npz")["y"], expected)


@pytest.mark.parametrize("name", CASES)
def test_other_sizes_and_fixed_ones(name: str) -> None:
    case = CASES[name]
    proto = case.proto
    model = ad.compile(proto)
    for size in (0, 1, 13, 127, 128, 255, 256, 257, 4099):
        x = np.zeros((size, *case.sizes[1:])[::-1], np.int8) if size < 2 else np.zeros(
            (size, *(3,) * (len(case.sizes) - 1)), np.int8
        )  # fmt: skip
        try:
            expected = reference(proto, x)
        except Exception:  # a size below 0
            continue
        same(model(x)["y"], expected)
    x = np.zeros(case.sizes, np.int8)
    fixed = ad.compile(proto, dims=dict(zip("nmk", case.sizes)))
    same(fixed(x)["y"], model(x)["y"])


def found(graph: Graph) -> int:
    """How many dims nodes of a graph find."""
    regions = [node.region for node in graph.nodes if node.region is not None]
    return sum(len(getattr(region, "dims", ())) for region in regions)


EXPORTED = {
    "rows flattened for a product": (
        "a = as int32(s) n = Gather(a, zero) m = Gather(a, one) q = Mul(n, m) b = Reshape(q, l) "
        "c = Concat <axis = 0> (b, l32) d = as int64(c) y = Reshape(x, d)"
    ),
    "positions": "a = as int32(s) n = Gather(a, one) y = Range(z32, n, o32)",
    "half": "a = as int32(s) n = Gather(a, one) h = Div(n, two) b = Reshape(h, l) c = as int64(b) "
    "y = Slice(x, z, c, l)",
    "at least one": "a = as int32(s) n = Gather(a, one) h = Max(n, o32) b = Reshape(h, l) "
    "c = as int64(b) y = ConstantOfShape(c)",
}


@pytest.mark.parametrize("name", EXPORTED)
def test_shapes_of_32_bits_stay_sizes(name: str) -> None:
    text = EXPORTED[name]
    for kind, number in TYPES.items():
        text = text.replace(f"as {kind}(", f"Cast <to = {number}> (")
    constants = (
        "int64 zero = {0}, int64 one = {1}, int64[1] l = {1}, int64[1] z = {0}, int32 z32 = {0}, "
        "int32 o32 = {1}, int32 two = {2}, int32[1] l32 = {4}"
    )
    graph = f"g (int8[n, m, 4] x) => (int8 y) <{constants}> {{ s = Shape(x) {text} }}"
    proto = onnx.parser.parse_model(HEAD + graph)
    proto.graph.output[0].type.Clear()
    imported = import_model(proto)
    assert found(imported) == 0
    model = ad.compile(imported)
    for sizes in ((0, 3), (1, 1), (2, 7), (13, 32)):
        x = np.arange(np.prod((*sizes, 4)), dtype=np.int8).reshape(*sizes, 4)
        same(model(x)["y"], reference(proto, x))


def test_a_size_that_32_bits_cannot_count_is_refused() -> None:
    proto = onnx.parser.parse_model(
        HEAD
        + """
        g (int8[n, m] x) => (int8[q] y) <int64 one = {1}, int64[1] l = {0}, int8[1] i = {1}> {
            s = Shape(x) a = Cast <to = 6> (s) b = Cast <to = 7> (a)
            c = Gather(b, one) d = Unsqueeze(c, l) y = Expand(i, d)
        }"""
    )
    model = ad.compile(proto)
    assert model(np.zeros((0, 5), np.int8))["y"].shape == (5,)
    with pytest.raises(DimError, match="a size is counted in int32"):
        model(np.zeros((0, 2**32 + 5), np.int8))


# ---- data among the sizes ----------------------------------------------------------------------


def test_data_that_wraps_is_not_the_size_that_it_was() -> None:
    proto = onnx.parser.parse_model(
        HEAD
        + """
        g (int64[1] v) => (int8[p] y, int8[q] z) <int8[1] i = {1}>
        { a = Cast <to = 2> (v) b = Cast <to = 7> (a) y = Expand(i, b) z = Expand(i, v) }"""
    )
    made = ad.compile(proto)(np.array([300]))
    assert (made["y"].shape, made["z"].shape) == ((44,), (300,))


# ---- a size of 0 -------------------------------------------------------------------------------


def reshaped(x: tuple[int, ...], shape: list[int], run_time: bool, **attributes: int) -> ad.Model:
    """A Reshape of x, free in its first axis, to a shape that is a constant or an input."""
    axes = ["n", *x[1:]]
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, axes)]
    held = [onnx.numpy_helper.from_array(np.array(shape), "shape")]
    if run_time:
        inputs.append(onnx.helper.make_tensor_value_info("shape", 7, [len(shape)]))
        held = []
    nodes = [onnx.helper.make_node("Reshape", ["x", "shape"], ["y"], "resize", **attributes)]
    results = [onnx.ValueInfoProto(name="y")]
    graph = onnx.helper.make_graph(nodes, "g", inputs, results, held)
    opsets = [onnx.helper.make_opsetid("", 18)]
    return ad.compile(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("run_time", [False, True])
@pytest.mark.parametrize(
    ("x", "shape", "allow", "expected"),
    [
        ((0, 3, 4), [0, -1, 4], 0, (0, 3, 4)),
        ((0, 3, 4), [-1, 0, 4], 0, (0, 3, 4)),
        ((0, 3, 4), [0, -1], 0, (0, 12)),
        ((0, 3, 4), [0, -1, 2, 2], 0, (0, 3, 2, 2)),
        ((0, 3, 4), [7, 0, -1], 0, (7, 3, 0)),
        ((0, 3, 4), [5, 0], 1, (5, 0)),
        ((2, 3, 4), [0, -1, 2, 0], 0, None),
        ((2, 3, 4), [0, -1, 6], 0, (2, 2, 6)),
    ],
)  # fmt: skip
def test_reshapes_of_nothing(
    x: tuple[int, ...], shape: list[int], run_time: bool, allow: int,
    expected: tuple[int, ...] | None,
) -> None:  # fmt: skip
    feeds = {"x": np.zeros(x, np.float32)} | ({"shape": np.array(shape)} if run_time else {})
    if expected is None:
        with pytest.raises((InputError, ModelError), match="resize"):
            reshaped(x, shape, run_time, allowzero=allow)(**feeds)
    else:
        assert reshaped(x, shape, run_time, allowzero=allow)(**feeds)["y"].shape == expected


def test_a_rest_that_nothing_decides_is_refused() -> None:
    proto = onnx.parser.parse_model(
        HEAD
        + """
        g (float[n, 3] x, int8[m] z) => (float[p, q] y) <int64[1] rest = {-1}>
        { s = Shape(z) t = Concat <axis = 0> (rest, s) [resize] y = Reshape(x, t) }"""
    )
    model = ad.compile(proto)
    assert model(np.zeros((4, 3), np.float32), np.zeros(6, np.int8))["y"].shape == (2, 6)
    with pytest.raises(InputError, match="resize"):
        model(np.zeros((0, 3), np.float32), np.zeros(0, np.int8))
    data = onnx.parser.parse_model(
        HEAD
        + """
        g (float[n, 3] x, int64[2] t) => (float[p, q] y) {
            [resize] y = Reshape <allowzero = 1> (x, t)
        }"""
    )
    with pytest.raises(InputError, match="resize"):
        ad.compile(data)(np.zeros((0, 3), np.float32), np.array([-1, 0]))


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_integers_are_not_divided_by_a_size_of_0(operator: str) -> None:
    proto = onnx.parser.parse_model(
        HEAD
        + f"""
        g (float[n] x, int64[k] z) => (int64[k] y) {{
            s = Shape(x) [share] y = {operator}(z, s)
        }}"""
    )
    x, z = np.zeros(0, np.float32), np.arange(3)
    free, fixed = ad.compile(proto), ad.compile(proto, dims={"n": 0})
    for model in (free, fixed):
        with pytest.raises(InputError, match="share: integer division by"):
            model(x, z)
        assert model(x, z[:0])["y"].shape == (0,)
    same(free(np.zeros(2, np.float32), z)["y"], z // 2 if operator == "Div" else z % 2)


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_nothing_has_no_largest_place(operator: str) -> None:
    proto = onnx.parser.parse_model(
        HEAD
        + f"""
        g (float[n, m] x) => (int64[n, one] y) {{ [best] y = {operator} <axis = 1> (x) }}"""
    )
    model = ad.compile(proto)
    with pytest.raises(InputError, match=r"(?s)best.*axis 1"):
        model(np.zeros((2, 0), np.float32))
    assert model(np.zeros((0, 0), np.float32))["y"].shape == (0, 1)
    assert model(np.zeros((2, 3), np.float32))["y"].tolist() == [[0], [0]]
