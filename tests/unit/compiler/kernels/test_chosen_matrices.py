"""Products of each row with the matrix that data chooses: near float64 at every size, same bits of
a row in any company, and errors for numbers that no matrix has.
"""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import DType, float32, int4, int8, int64
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.weight_only_quant import chosen_template as chosen
from anydim.compiler.kernels.rows import row_template as rows
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.runtime.positions import FINE
from anydim.serving.language_models.decoder_graph import _expert_products
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.launching import Prepared, once_for_each_target

TEXT = {
    float32: "def chosen(float(S,{W}) x, int64(S,2) e, float({E},{N},{W}) w) -> (y) {{"
    " y(s,k,n) +=! x(s,i) * w(e(s,k),n,i) }}",
    int8: "def chosen(float(S,{W}) x, int64(S,2) e, int8({E},{N},{W}) w, float({E},{N},{G}) d)"
    " -> (y) {{ y(s,k,n) +=! x(s,i) * (float32(w(e(s,k),n,i)) * d(e(s,k),n,i / {D})) }}",
}
TEXT[int4] = TEXT[int8].replace("int8", "int4")
BOX = Box.of(Dim("S", 0, 4096))
SHAPES = ((3, 32, 40, 8), (5, 48, 64, 32), (1, 64, 24, 24))  # matrices, columns, terms, block
KINDS = (float32, int8, int4)


@once_for_each_target
def prepared(
    kind: DType, shape: tuple[int, int, int, int], vector_bytes: int, registers: int = 32
) -> Prepared:
    e, n, w, d = shape
    text = TEXT[kind].format(E=e, N=n, W=w, D=d, G=w // d)
    sizes = [(as_size("S"), w), (as_size("S"), 2), (e, n, w), (e, n, w // d)]
    kinds = (float32, int64, kind, float32)
    types = [TensorType(k, tuple(map(as_size, each))) for k, each in zip(kinds, sizes)]
    group = instantiate(parse_definition(text), types[: 3 + (kind != float32)], box=BOX)
    machine = Machine(vector_bytes, registers)
    return Prepared(group, (chosen.TEMPLATE, rows.TEMPLATE), BOX, machine, frozenset("wd"))


def drawn(kind: DType, shape: tuple[int, int, int, int], count: int) -> list[np.ndarray]:
    e, n, w, d = shape
    random = np.random.default_rng(count)
    x = random.standard_normal((count, w)).astype(np.float32)
    numbers = random.integers(0, e, (count, 2))
    if kind == float32:
        return [x, numbers, random.standard_normal((e, n, w)).astype(np.float32)]
    low, high = kind.range
    codes = random.integers(low, high + 1, (e, n, w)).astype(kind.numpy)
    return [x, numbers, codes, random.random((e, n, w // d), np.float32) + np.float32(0.1)]


def check(found: np.ndarray, arrays: list[np.ndarray]) -> None:
    """Fields of 4 bits count from 8: magnitudes are up to 16 of weights of at most 8."""
    x, numbers = arrays[0].astype(np.float64), arrays[1]
    weights = arrays[2].astype(np.float32).astype(np.float64)
    if len(arrays) > 3:
        weights = weights * np.repeat(arrays[3], weights.shape[2] // arrays[3].shape[2], axis=2)
    for row, own in enumerate(numbers):
        for place, number in enumerate(own):
            made = weights[number] @ x[row]
            magnitude = np.abs(weights[number]) @ np.abs(x[row])
            magnitude += 2 * np.abs(x[row]).sum() * np.abs(weights).max()
            assert (np.abs(found[row, place] - made) <= 3e-6 * magnitude).all()


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("vector_bytes", (32, 64))
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_access_is_inside(kind: DType, vector_bytes: int) -> None:
    for shape in SHAPES[:2]:
        made = prepared(kind, shape, vector_bytes)
        assert made.template.name == "chosen_matrices"
        arrays = drawn(kind, shape, 3)
        check(made.outputs(arrays, {"S": 3}, 2, False)[0], arrays)


@pytest.mark.sampled
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_compiled(kind: DType, shape: tuple[int, int, int, int]) -> None:
    for registers in (16, 32):
        made = prepared(kind, shape, 32 if registers == 16 else 64, registers)
        if registers == 16:
            assert made.template.name == "chosen_matrices"
        for count in (0, 1, 2, 3, 4, 7, 33, 150):
            arrays = drawn(kind, shape, count)
            (whole,) = made.outputs(arrays, {"S": count}, 3, True)
            check(whole, arrays)
            for first, part in ((0, 1), (count // 2, 3), (count // 3, 20)):
                own = [a[first : first + part] for a in arrays[:2]]
                if len(own[0]):
                    (found,) = made.outputs([*own, *arrays[2:]], {"S": len(own[0])}, 1, True)
                    assert found.tobytes() == whole[first : first + part].tobytes()


def test_numbers_of_no_matrix_are_reported() -> None:
    made = prepared(float32, SHAPES[1], 32)
    for wrong in (5, -1, 2**40):
        arrays = drawn(float32, SHAPES[1], 4)
        arrays[1][2, 1] = wrong
        made.outputs(arrays, {"S": 4}, 1, True)
        assert wrong in made.status and (made.status == FINE).sum() == len(made.status) - 1


@pytest.mark.parametrize("how", ("spread", "each"))
@pytest.mark.parametrize("kind", (32, 8, 4))
def test_experts_of_language_models_are_chosen_matrices(how: str, kind: int) -> None:
    random, (e, k, n, w) = np.random.default_rng(kind), (4, 2, 96, 64)
    g, products = Builder("experts"), _expert_products()
    shape = (1, g.dim("s"), w) if how == "spread" else (1, g.dim("s"), k, w)
    x, numbers = g.input("x", float32, shape), g.input("e", int64, (1, g.dim("s"), k))
    weights = random.integers(-8, 8, (e, n, w)).astype(np.float32)
    if kind == 32:
        y = g.call(products[how], x, numbers, g.constant(weights))
    else:
        codes = weights.astype((int4 if kind == 4 else int8).numpy)
        scales = g.constant(np.full((e, n, w // 32), 0.5, np.float32))
        y = g.call(products[f"{how}_codes"], x, numbers, g.constant(codes), scales, D=32)
        weights = weights / 2
    g.output("y", y)
    model = ad.compile(g.graph(), threads=2)
    assert {s.schedule.partition("(")[0] for s in model.program.sites} == {"chosen_matrices"}
    for count in (0, 1, 40):
        given = random.standard_normal((1, count, *((k,) * (how == "each")), w))
        chosen_ = random.integers(0, e, (1, count, k))
        found = model(x=given.astype(np.float32), e=chosen_)["y"]
        each = given if how == "each" else np.repeat(given[:, :, None], k, 2)
        want = np.einsum("bski,bskni->bskn", each, weights[chosen_].astype(np.float64))
        np.testing.assert_allclose(found, want, atol=2e-4)
    with pytest.raises(ad.InputError, match="index 4 is outside"):
        model(x=given.astype(np.float32), e=chosen_ * 0 + 4)
