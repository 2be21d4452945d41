"""Promise: texts become loaded code, in parallel, and bad texts are reported as our bug."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from anydim.base import settings
from anydim.base.dtypes import float32
from anydim.base.errors import InternalError, OptionError
from anydim.compiler.kernels import ir
from anydim.compiler.targets.llvm.compiler import assembly, compile_modules
from anydim.compiler.targets.llvm.host import machine, this_machine, vector_unit
from anydim.compiler.targets.llvm.loader import load
from anydim.compiler.targets.llvm.render import render, sources
from anydim.compiler.targets.run import launch
from anydim.compiler.targets.target import Source
from anydim.compiler.targets.targets import TARGETS, target
from anydim.runtime.devices.table import DRIVERS
from tests.unit.compiler.targets.programs import START, STOP, index, kernel, loop, number, op

HERE = this_machine()
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


def module(name: str, addend: int) -> Source:
    body = f"  %y = add i64 %x, {addend}\n  ret i64 %y\n"
    return Source.of(f"define i64 @{name}(i64 %x) {{\n{body}}}\n")


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_many_modules(threads: int) -> None:
    modules = {f"f{n}": module(f"f{n}", n) for n in range(12)}
    with settings.override(use_cache=False):
        objects = compile_modules(modules, HERE, threads)
    assert list(objects.code) == list(objects.compiled) == list(modules)
    with load(objects.code.values(), modules) as code:
        assert [FUNCTION(code.address(f"f{n}"))(100) for n in range(12)] == [*range(100, 112)]


def test_objects_call_each_other_and_imports() -> None:
    caller = (
        "declare i64 @inner(i64)\ndeclare i64 @given(i64)\n"
        "define i64 @outer(i64 %x) {\n  %a = call i64 @inner(i64 %x)\n"
        "  %b = call i64 @given(i64 %a)\n  ret i64 %b\n}\n"
    )
    given = FUNCTION(lambda x: 10 * x)
    address = ctypes.cast(given, ctypes.c_void_p).value
    assert address is not None
    objects = compile_modules({"a": Source.of(caller), "b": module("inner", 1)}, HERE)
    with load(objects.code.values(), ["outer"], {"given": address}) as code:
        assert FUNCTION(code.address("outer"))(4) == 50


_IN_PIECES = """
import ctypes, mmap, sys
from anydim.compiler.targets.llvm.loader import load

system = ctypes.CDLL(None)
system.mmap.restype = ctypes.c_void_p
system.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
system.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
page, ours = mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # nothing is reserved

def take(pages):
    return system.mmap(None, pages * page, 0, ours, -1, 0)

def fill(above):  # until there are no two free pages in a row
    while take(2) > above:
        pass

data = open(sys.argv[1], "rb").read()
load([data], ["f"]).close()  # what LLVM itself needs is there
fill(take(2))
block = take(400)
for number in range(1, 400, 2):
    system.munmap(block + number * page, page)
fill(take(3 << 30 >> 12))
code = load([data], ["f"])
assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(code.address("f"))(2) == 30.0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for memory")
def test_code_loads_where_free_memory_lies_in_pieces(tmp_path: Path) -> None:
    """Two pages of code below 3 GB that are taken, and one page for its constants above them."""
    filling = "  store volatile i64 %n, i64* %place\n" * 2000  # 4 bytes each at least
    text = (
        "@table = internal constant [4 x double] [double 1.0, double 2.0, double 30.0, double 4.0]"
        "\ndefine double @f(i64 %n) {\n  %place = alloca i64\n" + filling
        + "  %at = getelementptr [4 x double], [4 x double]* @table, i64 0, i64 %n\n"
        "  %x = load double, double* %at\n  ret double %x\n}\n"
    )  # fmt: skip
    (data,) = compile_modules({"f": Source.of(text)}, HERE).code.values()
    (tmp_path / "f.o").write_bytes(data)
    given = [sys.executable, "-c", _IN_PIECES, str(tmp_path / "f.o")]
    done = subprocess.run(given, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_missing_symbol_is_our_bug() -> None:
    text = "declare void @nowhere()\ndefine void @f() {\n  call void @nowhere()\n  ret void\n}\n"
    with pytest.raises(InternalError, match="does not link"):
        load(compile_modules({"f": Source.of(text)}, HERE).code.values(), ["f"])


@pytest.mark.parametrize(
    "text",
    ["define i64 @f( {", "define i64 @f(i64 %x) {\n  ret i32 %x\n}"],
    ids=["syntax", "types"],
)
def test_bad_text_is_shown(text: str) -> None:
    with settings.override(use_cache=False), pytest.raises(InternalError) as caught:
        compile_modules({"f": Source.of(text)}, HERE)
    assert text in str(caught.value)


def test_render_gives_each_library_once() -> None:
    double = ir.Function("double", (ir.Pointer("x", float32),), (), public=True)
    library = ir.Library("lib", (double,))
    call = ir.Call("double", (ir.Address("x", number(0)),))
    operands = [ir.Operand("x", float32)]
    kernels = [kernel(operands, [call], libraries=[library], name=n) for n in ("a", "b")]
    assert list(sources(kernels, HERE)) == ["lib", "a", "b"]
    other = kernel(operands, [], libraries=[ir.Library("lib", ())], name="c")
    with pytest.raises(InternalError, match="lib"):
        sources([*kernels, other], HERE)


def test_vector_units() -> None:
    avx512 = "+avx2,+avx512f,+avx512bw,+avx512vl,+avx512dq,+fma"
    assert vector_unit(avx512, "x86_64") == (64, 32)
    assert vector_unit(avx512, "x86_64", 256) == (32, 32)
    assert vector_unit("+avx2,+fma,-avx512f", "x86_64") == (32, 16)
    assert vector_unit("+avx2,+fma", "x86_64", 512) == (32, 16)
    assert vector_unit("+sse2", "x86_64") == (16, 16)
    assert vector_unit("+neon", "aarch64-unknown-linux-gnu") == (16, 32)


def test_machine_honours_the_setting() -> None:
    with settings.override(vector_bits=128):
        assert machine().vector_bytes == 16
    assert machine().vector_bytes == vector_unit(HERE.features, HERE.triple)[0]
    assert 4096 <= machine().l1_bytes <= machine().l2_bytes


def triad(lanes: int) -> ir.Kernel:
    """y = a * x + y, over whole vectors."""
    kind = ir.Type(float32, lanes)
    x, y = (ir.Load(kind, name, index("i")) for name in "xy")
    value = op("fma", ir.Const(kind, 3.0), x, y)
    operands = [ir.Operand("x", float32), ir.Operand("y", float32, True)]
    return kernel(operands, [loop("i", START, STOP, ir.Store("y", index("i"), value), step=lanes)])


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_every_width_runs_everywhere(vector_bytes: int) -> None:
    """Vectors wider than the machine's are legal, only slower."""
    for lanes in (1, 4, 8, 16):
        x, y = numpy.arange(32, dtype=numpy.float32), numpy.ones(32, numpy.float32)
        launch(triad(lanes), [x, y], [], 0, 32, vector_bytes=vector_bytes)
        numpy.testing.assert_array_equal(y, 3 * x + 1)


def test_wide_vectors_use_wide_registers() -> None:
    if vector_unit(HERE.features, HERE.triple)[0] < 64 or HERE.architecture != "x86_64":
        pytest.skip("no AVX-512")
    half = replace(HERE, vector_bytes=32)
    assert "%zmm" in assembly(render(triad(16), HERE), HERE)
    assert "%zmm" not in assembly(render(triad(16), half), half)
    assert "vfmadd" in assembly(render(triad(16), half), half)


def test_a_loop_has_its_invariants_outside() -> None:
    """Splats and row addresses of a nest are written once, before the loops they do not need."""
    kind = ir.Type(float32, 8)
    at = op("add", op("mul", index("r"), index("n")), index("c"))
    scaled = op("mul", ir.Splat(kind, ir.Var(ir.Type(float32), "s")), ir.Load(kind, "x", at))
    columns = loop("c", number(0), index("n"), ir.Store("y", at, scaled), step=8)
    first = ir.Let("s", ir.Load(ir.Type(float32), "x", number(0)))
    built = kernel(
        [ir.Operand("x", float32), ir.Operand("y", float32, True)],
        [first, loop("r", START, STOP, columns)],
        ["n"],
    )
    text = render(built, HERE)
    inner = text[text.rindex("phi") :]
    assert "shufflevector" not in inner[: inner.index("br ")]
    assert "mul i64" not in inner[: inner.index("br ")]


def test_targets_are_found_by_name() -> None:
    hosts = {name for name, kind in TARGETS.items() if kind.is_host}
    assert hosts == {"llvm", "c"}
    assert set(TARGETS) - hosts == {"opencl", "opencl-groups", "cuda"}
    assert {name for driver in DRIVERS.values() for name in driver.targets} <= set(TARGETS)
    assert target("llvm").processor == HERE
    assert target("llvm").load is not None
    assert target("llvm", "x86-64-v2").load is None
    with pytest.raises(OptionError, match="llvm"):
        target("lllvm")
