"""Loop IR to the text of an OpenCL program per kernel.

`__kernel void NAME(__global uchar *m0, ..., __global uchar *scratch, words w)`: the memory object
of each operand, and a struct of int64s: the byte offset of each operand in its object, the sizes,
then `start, stop, part, at, stride`. Built with IN_MEMORY_OF_HOST it takes only the struct, in
which operands and scratch are addresses. A work-item of a range kernel runs `part` positions of
start:stop, with `stride` bytes of its own scratch from `at` on; group g of a group kernel runs
position start + g.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from anydim.base.cache import key_of
from anydim.compiler.kernels import ir
from anydim.compiler.targets.c.dialect import Dialect, storage_name
from anydim.compiler.targets.c.forms import Form
from anydim.compiler.targets.c.names import identifier
from anydim.compiler.targets.c.render import File
from anydim.compiler.targets.c.steps import GLOBAL, LOCAL
from anydim.compiler.targets.compilation import Compilation
from anydim.compiler.targets.functions.legalise import legalise
from anydim.compiler.targets.opencl.dialect import OPENCL
from anydim.compiler.targets.opencl.operations import helper
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Source

_EITHER = "#ifdef IN_MEMORY_OF_HOST\n{}\n#else\n{}\n#endif"
REST = ("start", "stop", "part", "at", "stride")


def sources(code: Iterable[ir.Kernel | ir.Library], processor: Processor) -> dict[str, Source]:
    """Return the texts of kernels by name, with the library functions that they call."""
    return each_source(code, OPENCL, partial(render, processor=processor))


def each_source(
    code: Iterable[ir.Kernel | ir.Library], dialect: Dialect, text: Callable[[ir.Kernel], str]
) -> dict[str, Source]:
    """Return the source of each kernel; `text` generates its program in a dialect."""
    kernels = (each for each in code if isinstance(each, ir.Kernel))
    return {each.name: Source.of_code(each, partial(text, each), dialect.name) for each in kernels}


def texts(processor: Processor, threads: int = 0) -> Compilation:
    """Return a compilation whose objects are texts, built later by the driver of a device."""
    return Compilation(
        lambda module: module.text().encode(), lambda module: key_of("text", module.identity),
        threads,
    )  # fmt: skip


def render(kernel: ir.Kernel, processor: Processor) -> str:
    """Return the program of a kernel."""
    return Program(OPENCL, processor, helper).whole(kernel)


class Program(File):
    """A program: functions are emitted when they are called, per address space."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.written: set[str] = set()

    def whole(self, kernel: ir.Kernel) -> str:
        """Return the text of a kernel's program."""
        libraries = [function for library in kernel.libraries for function in library.functions]
        self.know(legalise([*libraries, *kernel.functions], self.dialect.primitives))
        self.named = {identifier(kernel.name)}
        self.entry(kernel)
        return self.text(f"kernel {kernel.name}")

    def callee(self, name: str, spaces: Sequence[str]) -> str:
        called = f"{identifier(name)}_{''.join(space[0] for space in spaces)}"
        if called not in self.written:
            self.written.add(called)
            self.named.add(called)
            self.parts.append(self._define(self.known[name], called, spaces))
        return called

    def entry(self, kernel: ir.Kernel) -> None:
        """Emit the function that a device launches, and its callees."""
        spaces = [GLOBAL] * (len(kernel.operands) + 1) + [LOCAL] * len(kernel.locals)
        called = self.callee(kernel.main.name, spaces)
        index, byte = self.prelude.type(Form("i64")), self.prelude.type(Form("u8"))
        parameters, given = [], []
        for number, operand in enumerate(kernel.operands):
            parameters.append(f"__global {byte} *m{number}")
            kind = self.prelude.type(Form(storage_name(operand.dtype)))
            given.append(f"(__global {kind} *)AT(m{number}, w.at[{number}])")
        count = len(kernel.operands) + len(kernel.sizes)
        given += [f"w.at[{number}]" for number in range(len(kernel.operands), count)]
        start, stop, part, at, stride = (f"w.at[{count + n}]" for n in range(len(REST)))
        parameters += [f"__global {byte} *scratch", "const words w"]
        lines = [self._local(number, a) for number, a in enumerate(kernel.locals)]
        lines.append(
            f"const {index} number = ({index})get_{'group' if kernel.group else 'global'}_id(0);"
        )
        many = "" if kernel.group else f" * {part}"
        lines.append(f"const {index} first = {start} + number{many};")
        last = "first + 1" if kernel.group else f"min(first + {part}, {stop})"
        given += ["first", last, f"AT(scratch, {at} + number * {stride})"]
        given += [f"l{number}" for number in range(len(kernel.locals))]
        some = "" if kernel.group else f"if (first < {stop}) "  # one group per position
        lines.append(f"{some}{called}({', '.join(given)});")
        size = f"__attribute__((reqd_work_group_size({kernel.group}, 1, 1))) "
        head = f"__kernel {size if kernel.group else ''}void {identifier(kernel.name)}"
        body = "\n".join(f"  {line}" for line in lines)
        plain = f"#define AT(memory, place) ((__global {byte} *)(place))"
        self.parts.append(_EITHER.format(plain, "#define AT(memory, place) (memory + (place))"))
        handed = f"#define TAKEN {', '.join(parameters)}"
        self.parts.append(_EITHER.format("#define TAKEN const words w", handed))
        self.parts.append(f"typedef struct {{ {index} at[{count + len(REST)}]; }} words;")
        self.parts.append(f"{head}(TAKEN) {{\n{body}\n}}")

    def _local(self, number: int, array: ir.Local) -> str:
        kind = self.prelude.type(Form(storage_name(array.dtype)))
        return f"__local {kind} l{number}[{max(array.count, 1)}] __attribute__((aligned(64)));"
