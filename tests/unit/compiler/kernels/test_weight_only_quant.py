"""Products with weights of 4 and 8 bits: near the dequantised product in float64, at every size.

The sums are of float32: an error of some units in the last place of the sum of magnitudes. Fields
of 4 bits count from 8, which is taken off afterwards, so magnitudes are up to 16 of |weights| <= 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.base.dtypes import DType, float32, int4, int8
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.contraction import contraction_template as contraction
from anydim.compiler.kernels.matmul.weight_only_quant import quant_template as narrow
from anydim.compiler.kernels.rows import row_template as rows
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.launching import Prepared, once_for_each_target

TEXT = """def product(float(B,M,{K}) a, {kind}({N},{K}) w, float({N},{G}) s, float({N}) b) -> (y) {{
  t(i,m,n) +=! a(i,m,k) * (float(w(n,k)) * s(n, k // {block}))
  y(i,m,n) = max(t(i,m,n) + b(n), 0)
}}"""
BOX = Box.of(Dim("B", 0, 64), Dim("M", 0, 4096))
TEMPLATES = (narrow.TEMPLATE, contraction.TEMPLATE, rows.TEMPLATE)
SHAPES = ((8, 1, 8), (64, 48, 32), (96, 70, 16), (33, 65, 32), (40, 130, 40), (21, 5, 7))
CLOSE = 3e-6


@once_for_each_target
def prepared(
    kind: DType, shape: tuple[int, int, int], vector_bytes: int, registers: int = 32
) -> Prepared:
    k, n, block = shape
    groups = -(-k // block)
    text = TEXT.format(K=k, N=n, G=groups, block=block, kind=kind)
    sizes = [(as_size("B"), as_size("M"), k), (n, k), (n, groups), (n,)]
    types = [
        TensorType(dtype, tuple(map(as_size, each)))
        for dtype, each in zip((float32, kind, float32, float32), sizes)
    ]
    group = instantiate(parse_definition(text), types, box=BOX)
    machine = Machine(vector_bytes, registers)
    return Prepared(group, TEMPLATES, BOX, machine, frozenset(("w", "s")))


def drawn(kind: DType, shape: tuple[int, int, int], rows_: tuple[int, int]) -> list[np.ndarray]:
    k, n, block = shape
    random = np.random.default_rng(0)
    low, high = kind.range
    return [
        random.standard_normal((*rows_, k)).astype(np.float32),
        random.integers(low, high + 1, (n, k)).astype(kind.numpy),
        random.random((n, -(-k // block)), np.float32) + np.float32(0.1),
        random.standard_normal(n).astype(np.float32),
    ]


def check(found: np.ndarray, a: np.ndarray, weights: np.ndarray, b: np.ndarray) -> None:
    """`weights` are [n, k] in float64."""
    wide = a.astype(np.float64)
    magnitude = np.abs(wide) @ np.abs(weights.T) + np.abs(wide).sum(-1, keepdims=True) * (
        8 * np.abs(weights).max() / 7
    )
    error = np.abs(found - np.maximum(wide @ weights.T + b, 0))
    assert (error <= CLOSE * (magnitude + np.abs(b))).all()


def dequantised(w: np.ndarray, s: np.ndarray, block: int) -> np.ndarray:
    wide = np.repeat(s.astype(np.float64), block, axis=1)[:, : w.shape[1]]
    return w.astype(np.int8).astype(np.float64) * wide


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("vector_bytes", (32, 64))
@pytest.mark.parametrize("kind", (int8, int4), ids=str)
def test_every_access_is_inside(kind: DType, vector_bytes: int) -> None:
    for shape in SHAPES[:4]:
        made = prepared(kind, shape, vector_bytes)
        if shape[1] > 1:
            assert made.template.name == "weight_only_quant"
        a, w, s, b = drawn(kind, shape, (1, 2))
        (found,) = made.outputs([a, w, s, b], {"B": 1, "M": 2}, 2, False)
        check(found, a, dequantised(w, s, shape[2]), b)


@pytest.mark.parametrize("kind", (int8, int4), ids=str)
def test_every_access_of_many_rows_is_inside(kind: DType) -> None:
    """Tiles enough for weights to be made floats first."""
    shape = (33, 9, 16)
    made = prepared(kind, shape, 32, 16)
    a, w, s, b = drawn(kind, shape, (1, 6))
    (found,) = made.outputs([a, w, s, b], {"B": 1, "M": 6}, 2, False)
    check(found, a, dequantised(w, s, shape[2]), b)


@pytest.mark.sampled("int4-(40, 130, 40)", "int4-(21, 5, 7)", most=5)
@pytest.mark.parametrize("shape", (*SHAPES[1:], (1100, 9, 32)), ids=str)
@pytest.mark.parametrize("kind", (int8, int4), ids=str)
def test_compiled(kind: DType, shape: tuple[int, int, int]) -> None:
    for registers in (16, 32):
        made = prepared(kind, shape, 32 if registers == 16 else 64, registers)
        for size in ((0, 3), (1, 0), (1, 1), (1, 3), (2, 2), (1, 7), (5, 5), (3, 41)):
            a, w, s, b = drawn(kind, shape, size)
            for parts in (1, 3):
                (found,) = made.outputs([a, w, s, b], dict(zip("BM", size)), parts, True)
                check(found, a, dequantised(w, s, shape[2]), b)


@pytest.mark.parametrize("kind", (int8, int4), ids=str)
@pytest.mark.parametrize("shape", (SHAPES[2], (1100, 9, 32)), ids=str)
def test_a_row_has_the_same_bits_in_any_batch(kind: DType, shape: tuple[int, int, int]) -> None:
    made = prepared(kind, shape, 32)
    a, w, s, b = drawn(kind, shape, (1, 23))
    (whole,) = made.outputs([a, w, s, b], {"B": 1, "M": 23}, 2, True)
    for first, count in ((0, 1), (5, 2), (7, 3), (9, 5), (2, 13)):
        part = np.ascontiguousarray(a[:, first : first + count])
        (found,) = made.outputs([part, w, s, b], {"B": 1, "M": count}, 1, True)
        assert found.tobytes() == whole[:, first : first + count].tobytes()


# ---- models ------------------------------------------------------------------------------------


def dequantising(kind: int, k: int, n: int, block: int, zeros: Any) -> tuple[Any, np.ndarray]:
    """A model of DequantizeLinear, MatMul and Relu, and its weights [n, k] in float64."""
    random = np.random.default_rng(1)
    most = 7 if kind == TensorProto.INT4 else 127
    q = random.integers(-most, most + 1, (k, n)).astype(np.int8)
    s = random.random((-(-k // block), n) if block else (n,), np.float32) + np.float32(0.1)
    constants = [
        helper.make_tensor("q", kind, q.shape, q.reshape(-1).tolist()),
        numpy_helper.from_array(s, "s"),
    ]
    names = ["q", "s"]
    if zeros is not None:
        point = np.full(s.shape, zeros, np.int8)
        constants.append(helper.make_tensor("z", kind, s.shape, point.reshape(-1).tolist()))
        names.append("z")
    how = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [
        helper.make_node("DequantizeLinear", names, ["w"], **how),
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", "t", size])
        for name, size in (("x", k), ("y", n))
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    wide = np.repeat(s, block, axis=0)[:k] if block else s
    return model, ((q.astype(np.float64) - (zeros or 0)) * wide).T


@pytest.mark.sampled
@pytest.mark.parametrize("block", (0, 32))
@pytest.mark.parametrize("kind", (TensorProto.INT8, TensorProto.INT4))
@pytest.mark.parametrize("zeros", (None, 0, 3))
def test_dequantised_weights_are_read_as_they_are(kind: int, block: int, zeros: Any) -> None:
    """Those with zero points other than 0 are floats, as before."""
    proto, weights = dequantising(kind, 100, 70, block, zeros)
    model = ad.compile(proto.SerializeToString())
    notes = [note for note in model.report.notes[1:] if "folded" not in note]
    kernels = [note.split(":")[0] for note in notes]
    assert kernels == (["contraction"] if zeros else ["weight_only_quant"])
    for size in ((1, 1), (0, 2), (2, 7)):
        x = np.random.default_rng(2).standard_normal((*size, 100)).astype(np.float32)
        check(model(x)["y"], x, weights, np.zeros(70))


@pytest.mark.parametrize("bits", (2, 4, 8))
@pytest.mark.parametrize("given", (False, True))
def test_products_of_blocks_of_bits(bits: int, given: bool) -> None:
    k, n, block = 72, 37, 16
    random = np.random.default_rng(3)
    groups, each = -(-k // block), 8 // bits
    fields = random.integers(0, 1 << bits, (n, groups * block)).astype(np.uint8)
    packed = np.zeros((n, groups, block // each), np.uint8)
    for place in range(each):
        packed |= (fields[:, place::each] << (bits * place)).reshape(packed.shape)
    s = random.random((n, groups), np.float32) + np.float32(0.1)
    zero = (
        random.integers(0, 1 << bits, (n, groups)) if given else np.full((n, groups), 1 << bits - 1)
    )
    names, constants = ["x", "q", "s"], {"q": packed, "s": s.reshape(-1)}
    if given:
        padded = np.zeros((n, -(-groups // each) * each), np.uint8)
        padded[:, :groups] = zero
        points = np.zeros((n, padded.shape[1] // each), np.uint8)
        for place in range(each):
            points |= padded[:, place::each] << (bits * place)
        names.append("z")
        constants["z"] = points.reshape(-1)
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block
    )
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", size])
        for name, size in (("x", k), ("y", n))
    ]
    arrays = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], arrays)
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=domains, ir_version=10)
    model = ad.compile(onnx.ModelProto.SerializeToString(proto))
    notes = [note for note in model.report.notes[1:] if "folded" not in note]
    kernels = [note.split(":")[0] for note in notes]
    assert kernels == (["contraction"] if given and bits == 8 else ["weight_only_quant"])
    weights = (fields - np.repeat(zero, block, 1)) * np.repeat(s.astype(np.float64), block, 1)
    for count in (1, 3, 0, 20):
        x = random.standard_normal((count, k)).astype(np.float32)
        found = model(x)["y"]
        wide = x.astype(np.float64)
        magnitude = (
            np.abs(wide) @ np.abs(weights[:, :k]).T + np.abs(wide).sum(1, keepdims=True) * 16
        )
        assert (np.abs(found - wide @ weights[:, :k].T) <= CLOSE * magnitude).all()
