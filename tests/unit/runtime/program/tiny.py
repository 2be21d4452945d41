"""Small programs with hand-written kernels, compiled without any room above `program`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
import numpy

from anydim.api.model import Model
from anydim.base.dtypes import float32, from_numpy
from anydim.compiler.kernels.ir import Kernel, Operand
from anydim.compiler.native.host import host_of
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.llvm.render import render
from anydim.runtime import loading
from anydim.runtime.executable import Executable, Image
from anydim.runtime.program.compile_report import CompileReport
from anydim.runtime.program.program import Constant, Program
from anydim.runtime.program.program_reports import ProgramReports
from anydim.runtime.program.segment import Buffer, Segment, Site
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Guard, Size, align_up, as_size, product

# out[i] = a[i] + b[i] for the part of the range; operands a, b, out; size n
ADD = """
define void @add(ptr %arguments, i64 %start, i64 %stop, ptr %scratch) {
entry:
  %b.at = getelementptr i64, ptr %arguments, i64 1
  %out.at = getelementptr i64, ptr %arguments, i64 2
  %a = load ptr, ptr %arguments
  %b = load ptr, ptr %b.at
  %out = load ptr, ptr %out.at
  br label %test
test:
  %i = phi i64 [ %start, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %stop
  br i1 %more, label %body, label %end
body:
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %po = getelementptr float, ptr %out, i64 %i
  %x = load float, ptr %pa
  %y = load float, ptr %pb
  %z = fadd float %x, %y
  store float %z, ptr %po
  %next = add i64 %i, 1
  br label %test
end:
  ret void
}
"""

# out[i] = x[i], through the thread's scratch: written whole, then read back; operands x, out
THROUGH = """
define void @through(ptr %arguments, i64 %start, i64 %stop, ptr %scratch) {
entry:
  %out.at = getelementptr i64, ptr %arguments, i64 1
  %x = load ptr, ptr %arguments
  %out = load ptr, ptr %out.at
  br label %fill
fill:
  %i = phi i64 [ %start, %entry ], [ %i.next, %fill.body ]
  %i.more = icmp slt i64 %i, %stop
  br i1 %i.more, label %fill.body, label %drain
fill.body:
  %px = getelementptr float, ptr %x, i64 %i
  %ps = getelementptr float, ptr %scratch, i64 %i
  %v = load float, ptr %px
  store float %v, ptr %ps
  %i.next = add i64 %i, 1
  br label %fill
drain:
  %j = phi i64 [ %start, %fill ], [ %j.next, %drain.body ]
  %j.more = icmp slt i64 %j, %stop
  br i1 %j.more, label %drain.body, label %end
drain.body:
  %pt = getelementptr float, ptr %scratch, i64 %j
  %po = getelementptr float, ptr %out, i64 %j
  %w = load float, ptr %pt
  store float %w, ptr %po
  %j.next = add i64 %j, 1
  br label %drain
end:
  ret void
}
"""

# nothing; to measure launches
NOTHING = """
define void @nothing(ptr %arguments, i64 %start, i64 %stop, ptr %scratch) { ret void }
"""

TEXTS = {"add": ADD, "through": THROUGH, "nothing": NOTHING}


def kernel(name: str, operands: int, written: int, sizes: Sequence[str] = ()) -> Kernel:
    """A kernel record; its code is one of TEXTS."""
    made = [Operand(f"t{i}", float32, written=i >= operands - written) for i in range(operands)]
    return Kernel(name, tuple(made), tuple(sizes), ())


KERNELS = {
    "add": kernel("add", 3, 1, ("n",)),
    "through": kernel("through", 2, 1),
    "nothing": kernel("nothing", 0, 0),
}


def spec(name: str, *shape: int | str | Size, dtype=float32) -> TensorSpec:
    return TensorSpec(name, dtype, tuple(as_size(size) for size in shape))


def buffer(name: str, kind: str, elements: Size | int, offset: Size | int | None = None) -> Buffer:
    at = None if offset is None else as_size(offset)
    return Buffer(name, kind, as_size(elements) * 4, at)


def elements(tensor: TensorSpec) -> Size:
    return product(tensor.shape)


def program(
    box: Box,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    sites: Sequence[Site],
    arena: Mapping[str, Size] | None = None,
    constants: Mapping[str, numpy.ndarray] | None = None,
    threads: int = 1,
    guards: tuple[Guard, ...] = (),
    name: str = "tiny",
) -> Program:
    """A program; `arena` gives the elements of each intermediate value, one after the other.

    Scratch that a site asks for lies behind them.
    """
    buffers = [buffer(s.name, "input", elements(s)) for s in inputs]
    buffers += [buffer(s.name, "output", elements(s)) for s in outputs]
    buffers += [buffer(n, "constant", array.size) for n, array in (constants or {}).items()]
    end = as_size(0)
    for value, count in (arena or {}).items():
        buffers.append(buffer(value, "arena", count, end))
        end = end + align_up(count * 4, 64)
    placed = []
    for number, site in enumerate(sites):
        if site.scratch != 0:
            stride = align_up(site.scratch, 64)
            site = replace(site, scratch=stride, workspace=f"scratch {number}")
            buffers.append(Buffer(site.workspace, "arena", threads * stride, end))
            end = end + threads * stride
        placed.append(site)
    segment = Segment(
        signature=Signature(name, box, tuple(inputs), tuple(outputs), guards),
        buffers=tuple(buffers),
        sites=tuple(placed),
        constants=tuple(constants or {}),
        arena_bytes=end,
        threads=threads,
    )
    held = [Constant(n, from_numpy(a.dtype), a.shape) for n, a in (constants or {}).items()]
    return Program.of(segment, tuple(held))


@cache
def machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        codemodel="default", reloc="pic", opt=1
    )


@cache
def compiled(text: str) -> bytes:
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple = llvm.get_process_triple()
    return machine().emit_object(module)


def executable(made: Program, constants: Mapping[str, numpy.ndarray] | None = None) -> Executable:
    """Compile a program of one segment whose kernels are of TEXTS."""
    host = host_of(made)
    builder = llvm.JITLibraryBuilder()
    kernels = dict.fromkeys(site.kernel for site in made.sites)
    around = (render(module, this_machine()) for module in host.code)
    for text in (*around, *(TEXTS[name] for name in kernels)):
        builder.add_object_img(compiled(text))
    for symbol in host.interface.symbols:
        builder.export_symbol(symbol)
    jit = llvm.create_lljit_compiler(machine())
    library = builder.link(jit, f"tiny{id(host)}")
    image = Image(library.__getitem__, (library, jit))
    return loading.executable(made.signature, host.interface, image, constants or {}, made.threads)


def adder(box: Box, *shape: int | str, threads: int = 1, grain: int = 4) -> Program:
    """y = (a + b) + b, with the first sum in the arena."""
    a, b, y = spec("a", *shape), spec("b", *shape), spec("y", *shape)
    n = elements(a)
    sites = [
        Site("add", ("a", "b", "t"), (n,), n, as_size(grain), source="first"),
        Site("add", ("t", "b", "y"), (n,), n, as_size(grain), source="second"),
    ]
    return program(box, [a, b], [y], sites, arena={"t": n}, threads=threads)


def model_of(made: Program, reference: Any = dict, report: CompileReport | None = None) -> Model:
    """A program as a model; `reference` is its meaning."""
    known: Any = SimpleNamespace(reference=reference, plain=None, rounded=False)
    story = ProgramReports(made)
    return Model(executable(made), lambda: story, lambda: known, report, indices=dict)
