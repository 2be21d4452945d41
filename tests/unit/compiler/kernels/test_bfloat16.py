"""Products of bfloat16 have the bits of a model in numpy, at every size and in every layout.

The model adds the pairs of k-steps in order: the second of a pair, then the first, each with one
rounding; subnormal numbers are zeros. With tiles, even and odd k-steps of 32 are summed apart. The
evaluator of the loop IR checks every access to memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy
import pytest

from anydim.base import settings
from anydim.base.dtypes import DTYPES, bfloat16, convert_array, float32
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.int8.int8_template import BFLOAT16
from anydim.compiler.targets.evaluated.functions import flushing_sum, fused_flushing
from anydim.compiler.targets.targets import target
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.launching import Prepared

BOX = Box.of(Dim("m", 0), Dim("k", 0), Dim("n", 0))
VECTORS, TILES = Machine(64, 32, pairs=True), Machine(64, 32, pairs=True, pair_tiles=True)
MACHINES = pytest.mark.parametrize("machine", [VECTORS, TILES], ids=["vectors", "tiles"])
LANES = 16
SIZES = (
    (0, 5, 3), (1, 0, 4), (1, 1, 1), (2, 3, LANES + 1), (3, 2, LANES), (7, 4, LANES - 1),
    (9, 67, 49), (17, 31, 48), (33, 34, 97),
)  # fmt: skip
NARROW = "cast<float>(cast<bfloat16>({}))".format
TEXTS = {
    "plain": f"""
def product(float(M,K) a, float(K,N) b) -> (c) {{
  c(m,n) +=! {NARROW("a(m,k)")} * {NARROW("b(k,n)")} }}""",
    "16 bits": f"""
def product(float(M,K) a, bfloat16(K,N) b) -> (c) {{
  c(m,n) +=! {NARROW("a(m,k)")} * cast<float>(b(k,n)) }}""",
    "transposed": f"""
def product(float(K,M) a, bfloat16(N,K) b) -> (c) {{
  c(m,n) +=! {NARROW("a(k,m)")} * cast<float>(b(n,k)) }}""",
    "16 bits first": f"""
def product(bfloat16(M,K) a, float(K,N) b) -> (c) {{
  c(m,n) +=! cast<float>(a(m,k)) * {NARROW("b(k,n)")} }}""",
    "batch": f"""
def product(float(3,M,K) a, bfloat16(3,K,N) b) -> (c) {{
  c(p,m,n) +=! {NARROW("a(p,m,k)")} * cast<float>(b(p,k,n)) }}""",
    "epilogue": f"""
def product(float(M,K) a, bfloat16(K,N) b, float(N) bias) -> (y) {{
  c(m,n) +=! {NARROW("a(m,k)")} * cast<float>(b(k,n))
  y(m,n) = max(c(m,n) + bias(n), 0.0) }}""",
}


@pytest.fixture(autouse=True)
def _vectors_of_words(kernel_target: str) -> None:
    """OpenCL has none as wide as those of processors, and its devices are never asked for them."""
    if kernel_target == "opencl":
        pytest.skip("no vectors of 64 bytes")


def runs(machine: Machine) -> bool:
    """Whether this machine runs what is compiled for that one, with the same bits."""
    own = target(settings.target).machine
    return own.pair_tiles if machine.pair_tiles else own.fused


def group_of(text: str, known: Mapping[str, int] | None = None) -> Group:
    """The group of a definition; sizes that are `known` are constants."""
    definition = parse(text)["product"]
    types = {"float": float32, "bfloat16": DTYPES["bfloat16"]}
    made = []
    for parameter in definition.parameters:
        names = [getattr(t, "name", None) or str(t.value) for t in parameter.shape]  # type: ignore[union-attr]
        sizes = [(known or {}).get(name.lower(), name.lower()) for name in names]
        shape = tuple(as_size(int(s) if str(s).isdigit() else s) for s in sizes)
        made.append(TensorType(types[str(parameter.type)], shape))
    return instantiate(definition, made, {}, BOX)


def arrays(group: Group, sizes: Mapping[str, int]) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(3)
    made = {}
    for tensor in group.inputs:
        shape = [size.evaluate(sizes) for size in tensor.type.shape]
        values = random.standard_normal(shape) * 2.0 ** random.integers(-3, 4, shape)
        made[tensor.name] = convert_array(values, tensor.type.dtype.numpy)
    return made


def rounded(array: numpy.ndarray) -> numpy.ndarray:
    return convert_array(convert_array(array, bfloat16.numpy), float32.numpy)


def product(a: numpy.ndarray, b: numpy.ndarray, tiles: bool) -> numpy.ndarray:
    """[m, k] times [k, n] in the order of the machine."""
    (m, k), n = a.shape, b.shape[1]
    depth = 32 if tiles else 2
    pad = -k % depth
    a, b = numpy.pad(rounded(a), ((0, 0), (0, pad))), numpy.pad(rounded(b), ((0, pad), (0, 0)))
    total = numpy.zeros((m, n), numpy.float32)
    for start in range(0, k + pad, depth):
        parts = [numpy.zeros((m, n), numpy.float32) for _ in range(2)] if tiles else [total]
        for word in range(start, start + depth, 2):
            for half in (0, 1) if tiles else (1, 0):
                at, part = word + half, half if tiles else 0
                parts[part] = fused_flushing(a[:, at, None], b[None, at], parts[part])
        total = flushing_sum(total, flushing_sum(*parts)) if tiles else parts[0]
    return total


def expected(text: str, values: Mapping[str, numpy.ndarray], tiles: bool) -> numpy.ndarray:
    a, b = values["a"], values["b"]
    if text == "transposed":
        a, b = a.T, b.T
    if text == "batch":
        return numpy.stack([product(x, y, tiles) for x, y in zip(a, b)])
    total = product(a, b, tiles)
    return numpy.maximum(total + values["bias"], 0) if text == "epilogue" else total


def check(
    prepared: Prepared, text: str, sizes: Mapping[str, int], parts: int = 1,
    given: Mapping[str, numpy.ndarray] | None = None, compiled: bool | None = None,
) -> None:  # fmt: skip
    values = {**arrays(prepared.group, sizes), **(given or {})}
    order = [values[tensor.name] for tensor in prepared.group.inputs]
    can = runs(prepared.machine)
    (found,) = prepared.outputs(order, sizes, parts, can if compiled is None else compiled)
    want = expected(text, values, prepared.machine.pair_tiles)
    same = (found.view(numpy.uint32) == want.view(numpy.uint32)) | (
        numpy.isnan(found) & numpy.isnan(want)
    )
    assert same.all(), (text, sizes)


@pytest.mark.sampled
@MACHINES
@pytest.mark.parametrize("text", TEXTS)
def test_bits_at_every_size(text: str, machine: Machine) -> None:
    prepared = Prepared(group_of(TEXTS[text]), [BFLOAT16], BOX, machine)
    for number, (m, k, n) in enumerate(SIZES):
        check(prepared, text, {"m": m, "k": k, "n": n}, number % 3 + 1)


@MACHINES
@pytest.mark.parametrize("text", TEXTS)
def test_no_access_leaves_its_memory(text: str, machine: Machine) -> None:
    prepared = Prepared(group_of(TEXTS[text]), [BFLOAT16], BOX, machine)
    for m, k, n in ((0, 3, 3), (1, 1, 1), (5, 3, 9), (9, 35, 50)):
        check(prepared, text, {"m": m, "k": k, "n": n}, 2, compiled=False)


@pytest.mark.sampled
@MACHINES
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("constants", ["a", "b"])
def test_constants(text: str, constants: str, machine: Machine) -> None:
    for known in (
        {"m": 3, "k": 5, "n": 50}, {"m": 20, "k": 64, "n": 7}, {"m": 3, "k": 0, "n": 5},
        {"m": 3, "k": 4, "n": 0},
    ):  # fmt: skip
        group = group_of(TEXTS[text], known)
        prepared = Prepared(group, [BFLOAT16], BOX, machine, frozenset(constants))
        check(prepared, text, {})


@MACHINES
def test_special_numbers(machine: Machine) -> None:
    """Infinities, NaN, subnormal and huge numbers; row by row, as NaN must not leave its row."""
    hard = numpy.float32([
        numpy.inf, -numpy.inf, numpy.nan, 1e-40, -1e-40, 2.0**-126, 3.4e38, -3.4e38, 1e-20, -0.0,
        2.0**-133, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 65536.0,
    ])  # fmt: skip
    random = numpy.random.default_rng(5)
    a, b = (random.standard_normal(shape).astype(numpy.float32) for shape in ((40, 37), (37, 21)))
    a[numpy.arange(28), random.integers(0, 37, 28)] = numpy.tile(hard, 2)
    a[28], b[:, 4], b[:, 5] = 1e-30, 1e-30, 3e38
    b[3, 6], b[7, 7] = numpy.inf, numpy.nan
    prepared = Prepared(group_of(TEXTS["plain"]), [BFLOAT16], BOX, machine)
    sizes = {"m": 40, "k": 37, "n": 21}
    check(prepared, "plain", sizes, given={"a": a, "b": b})
    check(prepared, "plain", sizes, given={"a": a, "b": b}, compiled=False)


@pytest.mark.parametrize("machine", [
    Machine(64, 32), Machine(32, 16), Machine(64, 32, tiles=True), Machine(16, 16),
])  # fmt: skip
def test_other_machines_do_without(machine: Machine) -> None:
    for text in TEXTS.values():
        assert BFLOAT16.match(group_of(text), BOX, machine, frozenset("b")) is None
