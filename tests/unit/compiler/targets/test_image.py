"""Promise: objects become one image that runs wherever it is mapped, or are refused as our bug."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from anydim.base.dtypes import float16, float32
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.targets.image import link
from anydim.compiler.targets.llvm.compiler import compile_modules
from anydim.compiler.targets.processor import Processor, describe_processor, every_name
from anydim.compiler.targets.run import ENTRY
from anydim.compiler.targets.support import support_modules
from anydim.compiler.targets.target import Source
from anydim.compiler.targets.targets import target
from anydim.runtime.image import MappedImage, map_bytes, map_file, read_head
from tests.unit.compiler.targets.programs import START, STOP, index, kernel, loop

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
HERE = target("llvm").processor
ELF = replace(describe_processor("x86-64-v2" if HERE.architecture == "x86_64" else "aarch64"))
ARCHITECTURES = ["x86-64-v2", "aarch64", "riscv64"]

CALLER = """
declare i64 @inner(i64)
define i64 @outer(i64 %x) {
  %a = call i64 @inner(i64 %x)
  %b = add i64 %a, 1
  ret i64 %b
}
"""
INNER = "define i64 @inner(i64 %x) {\n  %y = mul i64 %x, 10\n  ret i64 %y\n}\n"
TABLE = """
@numbers = private unnamed_addr constant [8 x i64] [i64 3, i64 1, i64 4, i64 1, i64 5, i64 9,
                                                    i64 2, i64 6], align 64
define i64 @digit(i64 %n) {
  %at = getelementptr i64, ptr @numbers, i64 %n
  %value = load i64, ptr %at
  ret i64 %value
}
"""
SWITCH = """
define i64 @pick(i64 %n, ptr %unused) optnone noinline {
entry:
  switch i64 %n, label %other [ i64 0, label %a  i64 1, label %b  i64 2, label %c  i64 3, label %d
                                i64 4, label %e ]
a:
  ret i64 7
b:
  %v = add i64 %n, 1000002
  ret i64 %v
c:
  %x = mul i64 %n, 77
  ret i64 %x
d:
  %y = xor i64 %n, 91
  ret i64 %y
e:
  %z = shl i64 %n, 2
  ret i64 %z
other:
  ret i64 -1
}
"""
POINTER = """
declare i64 @inner(i64)
define i64 @through(i64 %x) noinline optnone {
  %place = alloca ptr
  store ptr @inner, ptr %place
  %function = load ptr, ptr %place
  %y = call i64 %function(i64 %x)
  ret i64 %y
}
"""


def image(texts: Sequence[str], entries: Sequence[str], processor: Processor = ELF) -> bytes:
    modules = {str(number): Source.of(text) for number, text in enumerate(texts)}
    return link(compile_modules(modules, processor, 1).code.values(), entries)


def call(made: MappedImage, entry: int, value: int) -> int:
    return int(FUNCTION(made.address(entry))(value))


def check_all(made: MappedImage) -> None:
    assert call(made, 0, 4) == 41
    assert [call(made, 1, n) for n in range(8)] == [3, 1, 4, 1, 5, 9, 2, 6]
    assert [call(made, 2, n) for n in (-1, 0, 1, 2, 3, 4, 5)] == [-1, 7, 1000003, 154, 88, 16, -1]
    assert call(made, 3, 6) == 60


TEXTS = (CALLER, TABLE, INNER, SWITCH, POINTER)
ENTRIES = ("outer", "digit", "pick", "through")


def test_it_runs_from_memory() -> None:
    check_all(map_bytes(image(TEXTS, ENTRIES)))


@pytest.mark.parametrize("offset", [0, 1 << 16, 64], ids=["start", "page", "no page"])
def test_it_runs_from_a_file(tmp_path: Path, offset: int) -> None:
    code = image(TEXTS, ENTRIES)
    path = tmp_path / "code"
    path.write_bytes(bytes(offset) + code + b"more")
    with path.open("rb") as file:
        made = map_file(file, offset, len(code))
    check_all(made)
    assert bytes(made.data) == code


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_same_objects_make_the_same_image(name: str) -> None:
    assert image(TEXTS, ENTRIES, describe_processor(name)) == image(
        TEXTS, ENTRIES, describe_processor(name)
    )
    assert read_head(image(TEXTS, ENTRIES, describe_processor(name))).platform in (
        "x86_64",
        "aarch64",
        "riscv64",
    )


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize(
    "texts, entries, expected",
    [
        ((CALLER,), ("outer",), "'inner', which no object defines"),
        ((INNER,), ("outer",), "no object defines"),
        ((INNER, INNER.replace("10", "11")), ("inner",), "two objects define 'inner'"),
        (("@state = global i64 5\ndefine ptr @f() {\n  ret ptr @state\n}\n",), ("f",), "writable"),
        (("@zeros = global [4 x i64] zeroinitializer\n",), (), "writable"),
        (("@me = constant ptr @me\n",), (), "writable"),
        (("@t = thread_local global i64 1\n",), (), "writable"),
    ],
)  # fmt: skip
def test_what_no_image_can_have_is_our_bug(
    texts: tuple[str, ...], entries: tuple[str, ...], expected: str, name: str
) -> None:
    with pytest.raises(InternalError, match=expected):
        image(texts, entries, describe_processor(name))


def test_objects_of_two_architectures() -> None:
    objects = [
        *compile_modules({"a": Source.of(INNER)}, describe_processor("x86-64-v2"), 1).code.values(),
        *compile_modules({"b": Source.of(TABLE)}, describe_processor("aarch64"), 1).code.values(),
    ]
    with pytest.raises(InternalError, match="aarch64"):
        link(objects, ["inner"])


# ---- kernels -------------------------------------------------------------------------------------

FUNCTIONS = ("exp", "log", "sin", "tanh", "erf", "pow", "fmod", "floor", "round")


def unary(name: str, lanes: int, half: bool = False) -> ir.Kernel:
    """y = function of x, over whole vectors."""
    dtype = float16 if half else float32
    kind = ir.Type(dtype, lanes)
    x = ir.Load(kind, "x", index("i"))
    value = ir.Op(kind, name, (x, x) if name in ("pow", "fmod") else (x,))
    operands = [ir.Operand("x", dtype), ir.Operand("y", dtype, True)]
    store = ir.Store("y", index("i"), value)
    return kernel(operands, [loop("i", START, STOP, store, step=lanes)], name=f"k_{name}")


def linked(kernels: Mapping[str, ir.Kernel], processor: Processor) -> bytes:
    made = replace(target("llvm", processor.name), processor=processor.of_images)
    modules = made.sources(kernels.values(), made.processor)
    code = {**made.compile(modules).code, **made.compile(support_modules(processor.system)).code}
    return link(code.values(), list(kernels), system=processor.system)


@pytest.mark.sampled
@pytest.mark.parametrize("name", every_name())
@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
def test_kernels_of_every_processor_need_nothing_else(name: str, half: bool) -> None:
    processor = describe_processor(name)
    lanes = processor.vector_bytes // 4
    kernels = {f"k_{each}": unary(each, lanes, half) for each in FUNCTIONS}
    head = read_head(linked(kernels, processor))
    assert head.platform == processor.platform
    assert len(head.entries) == len(FUNCTIONS)


@pytest.mark.skipif(HERE.architecture != "x86_64", reason="a level of x86-64")
def test_halves_without_an_instruction_for_them() -> None:
    """Every float16 there is, and what lies between two of them, as numpy has it."""
    made = map_bytes(linked({"k_mul": unary_double()}, describe_processor("x86-64-v2")))
    x = numpy.arange(65536, dtype=numpy.uint16).view(numpy.float16)
    y = numpy.zeros_like(x)
    block = (ctypes.c_int64 * 2)(x.ctypes.data, y.ctypes.data)
    ENTRY(made.address(0))(ctypes.addressof(block), 0, x.size, None)
    with numpy.errstate(all="ignore"):
        expected = (x.astype(numpy.float32) * numpy.float32(1.3330078125)).astype(numpy.float16)
    numpy.testing.assert_array_equal(y, expected)
    assert numpy.array_equal(numpy.signbit(y), numpy.signbit(expected))


def unary_double() -> ir.Kernel:
    kind = ir.Type(float16, 8)
    value = ir.Op(kind, "mul", (ir.Load(kind, "x", index("i")), ir.Const(kind, 1.3330078125)))
    operands = [ir.Operand("x", float16), ir.Operand("y", float16, True)]
    body = [loop("i", START, STOP, ir.Store("y", index("i"), value), step=8)]
    return kernel(operands, body, name="k_mul")
