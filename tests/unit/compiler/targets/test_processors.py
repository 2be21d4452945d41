"""Promise: code is made for the processor that is described, and only for one that there is."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from anydim.base import settings
from anydim.base.dtypes import float32, int32
from anydim.base.errors import OptionError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.matmul.int8.int8_micro_kernels import bytes_library, tiles_of_words
from anydim.compiler.kernels.matmul.int8.pair_micro_kernels import pair_library
from anydim.compiler.kernels.matmul.int8.word_types import PAIRS
from anydim.compiler.kernels.matmul.register_tile import tile_of
from anydim.compiler.targets.llvm.compiler import assembly
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.llvm.render import render
from anydim.compiler.targets.processor import describe_processor, every_name
from anydim.compiler.targets.targets import target
from tests.unit.compiler.targets.programs import START, STOP, index, kernel, loop

MACHINES = {  # how an object begins: its format, and the number of its architecture
    "ELF": {"x86_64": (18, 62), "aarch64": (18, 183), "riscv64": (18, 243)},
    "COFF": {"x86_64": (0, 0x8664)},
    "Mach-O": {"x86_64": (4, 7), "aarch64": (4, 12)},
}


def triad(lanes: int) -> ir.Kernel:
    """y = x * x + y, over whole vectors."""
    kind = ir.Type(float32, lanes)
    x, y = (ir.Load(kind, name, index("i")) for name in "xy")
    value = ir.Op(kind, "fma", (x, x, y))
    operands = [ir.Operand("x", float32), ir.Operand("y", float32, True)]
    return kernel(operands, [loop("i", START, STOP, ir.Store("y", index("i"), value), step=lanes)])


def dots(lanes: int) -> ir.Kernel:
    kind = ir.Type(int32, lanes)
    loads = tuple(ir.Load(kind, name, index("i")) for name in "abc")
    store = ir.Store("c", index("i"), ir.Op(kind, "dot_bytes", loads))
    operands = [*(ir.Operand(name, int32) for name in "ab"), ir.Operand("c", int32, True)]
    return kernel(operands, [loop("i", START, STOP, store, step=lanes)], name="dots")


@pytest.mark.parametrize("name", every_name())
def test_every_described_processor_gets_objects_of_its_system(name: str) -> None:
    made = target("llvm", name)
    system = made.processor.system
    assert made.processor.name == name and name.startswith(system.prefix)
    assert made.load is None
    lanes = made.machine.lanes(float32)
    modules = made.sources([triad(lanes), dots(lanes)], made.processor)
    with settings.override(use_cache=False):
        objects = made.compile(modules, 1)
    for code in objects.code.values():
        assert (code[:5] == b"\x7fELF\x02") == (system.objects == "ELF")
        assert (code[:4] == b"\xcf\xfa\xed\xfe") == (system.objects == "Mach-O")
        at, number = MACHINES[system.objects][made.processor.architecture]
        assert struct.unpack_from("<H", code, at)[0] == number


@pytest.mark.parametrize(
    "name, without, has",
    [
        ("x86-64-v2", "ymm", "mulps"), ("x86-64-v3", "zmm", "vfmadd"),
        ("x86-64-v4", "ymm", "vfmadd"), ("aarch64", "xmm", "fmla"),
    ],
)  # fmt: skip
def test_code_is_of_the_level(name: str, without: str, has: str) -> None:
    processor = describe_processor(name)
    lanes = processor.machine.lanes(float32)
    text = assembly(render(triad(lanes), processor), processor)
    assert has in text
    assert without not in text


@pytest.mark.parametrize(
    "name, has",
    [
        ("x86-64-v3", "vpmaddwd"), ("x86-64-v3+vnni", "vpdpbusd"), ("x86-64-v4", "vpmaddwd"),
        ("x86-64-v4+vnni", "vpdpbusd"), ("aarch64", "mla"), ("aarch64+dotprod", "sdot"),
    ],
)  # fmt: skip
def test_dot_products_of_bytes(name: str, has: str) -> None:
    processor = describe_processor(name)
    lanes = processor.machine.lanes(int32)
    assert has in assembly(render(dots(lanes), processor), processor)


def test_tiles() -> None:
    processor = describe_processor("x86-64-v4+amx")
    assert processor.machine.tiles and not describe_processor("x86-64-v4+vnni").machine.tiles
    assert {"amx_tile", "amx_int8", "avx512_vnni"} <= processor.flags
    assert not processor.as_plain.machine.tiles and processor.as_plain_with_tiles.machine.tiles
    library = bytes_library(tiles_of_words(processor.machine), True, ir.TILE)
    text = assembly(render(library, processor), processor)
    assert all(word in text for word in ("tileloadd", "tdpbusd", "tilestored"))


@pytest.mark.parametrize("name", ["x86-64-v4+bfloat16", "x86-64-v4+amx-bfloat16"])
def test_products_of_bfloat16(name: str) -> None:
    processor = describe_processor(name)
    has_tiles = processor.machine.pair_tiles
    assert processor.machine.pairs and has_tiles == ("amx" in name)
    assert {"avx512_bf16"} <= processor.flags and has_tiles == ("amx_bf16" in processor.flags)
    assert not processor.as_plain.machine.pairs and not processor.as_plain.machine.pair_tiles
    narrow = replace(processor, vector_bytes=32).machine
    assert not narrow.pairs and not narrow.pair_tiles
    tile = tiles_of_words(processor.machine, PAIRS) or tile_of(processor.machine, float32)
    library = pair_library(tile, ir.TILE if has_tiles else 1, 1)
    text = assembly(render(library, processor), processor)
    assert ("tdpbf16ps" in text) == has_tiles
    assert ("vdpbf16ps" in text) != has_tiles, "no kernel of fewer rows sums in another order"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x86-64-v5", "x86-64-v"), ("x86-64-v2+vnni", "nothing can be added"), ("", "aarch64"),
        ("aarch64+vnni", "aarch64+dotprod"), ("x86-64-v3+", "x86-64-v3+vnni"),
    ],
)  # fmt: skip
def test_a_processor_that_there_is_not(text: str, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        describe_processor(text)
    assert expected in str(caught.value)


def test_flags_are_what_linux_calls_them() -> None:
    assert {"lahf_lm", "pni", "sse4_1"} <= describe_processor("x86-64-v2").flags
    assert {"abm", "bmi1", "avx_vnni"} <= describe_processor("x86-64-v3+vnni").flags
    assert describe_processor("aarch64+dotprod").flags == {"fp", "asimd", "asimddp"}


def test_this_machine_honours_the_setting() -> None:
    with settings.override(vector_bits=128):
        assert this_machine().vector_bytes == 16
    assert this_machine().name == "native"
