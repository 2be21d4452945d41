"""Loop IR to the text of a CUDA program per kernel.

`extern "C" __global__ void NAME(void *m0, ..., long long p0, ..., long long stop, long long part,
unsigned char *scratch, long long stride)`: the address of each operand, the sizes, then the end of
the range. A thread of a range kernel runs `part` positions of 0:stop with `stride` bytes of its own
scratch; block g of a group kernel runs position g. `NAME_range` exists if threads share a range.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from anydim.compiler.kernels import ir
from anydim.compiler.targets.c.dialect import storage_name
from anydim.compiler.targets.c.forms import Form
from anydim.compiler.targets.c.names import identifier
from anydim.compiler.targets.c.steps import GLOBAL, LOCAL
from anydim.compiler.targets.cuda.dialect import CUDA
from anydim.compiler.targets.cuda.operations import helper
from anydim.compiler.targets.opencl.render import Program, each_source
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Source
from anydim.runtime.devices.cuda import RANGE

ITEMS = 128  # maximum threads per block of a range kernel


def sources(code: Iterable[ir.Kernel | ir.Library], processor: Processor) -> dict[str, Source]:
    """Return the texts of kernels by name, with the library functions that they call."""
    return each_source(code, CUDA, partial(render, processor=processor))


def render(kernel: ir.Kernel, processor: Processor) -> str:
    """Return the program of a kernel."""
    return _Program(CUDA, processor, helper).whole(kernel)


class _Program(Program):
    """Pointers are generic addresses."""

    def entry(self, kernel: ir.Kernel) -> None:
        """Emit the function that a device launches, and its callees."""
        spaces = [GLOBAL] * (len(kernel.operands) + 1) + [LOCAL] * len(kernel.locals)
        called, name = self.callee(kernel.main.name, spaces), identifier(kernel.name)
        index, byte = self.prelude.type(Form("i64")), self.prelude.type(Form("u8"))
        kinds = [
            self.prelude.type(Form(storage_name(operand.dtype))) for operand in kernel.operands
        ]
        parameters = [f"{kind} *m{number}" for number, kind in enumerate(kinds)]
        parameters += [f"{index} p{number}" for number in range(len(kernel.sizes))]
        given = [parameter.rpartition(" ")[2].lstrip("*") for parameter in parameters]
        parameters += [f"{index} stop", f"{index} part", f"{byte} *scratch", f"{index} stride"]
        lines = [self._local(number, array) for number, array in enumerate(kernel.locals)]
        if kernel.group:
            lines.append(f"const {index} number = ({index})blockIdx.x, first = number;")
            last = "first + 1"
        else:
            mine = f"({index})blockIdx.x * blockDim.x + threadIdx.x"
            lines.append(f"const {index} number = {mine}, first = number * part;")
            last = "first + part < stop ? first + part : stop"
            self.parts.append(f'extern "C" __device__ const char {name}{RANGE} = 1;')
        given += ["first", last, "scratch + number * stride"]
        given += [f"l{number}" for number in range(len(kernel.locals))]
        lines.append(f"if (first < stop) {called}({', '.join(given)});")
        body = "\n".join(f"  {line}" for line in lines)
        bounds = f"__launch_bounds__({kernel.group or ITEMS})"
        head = f'extern "C" __global__ void {bounds} {name}'
        self.parts.append(f"{head}({', '.join(parameters)}) {{\n{body}\n}}")

    def _local(self, number: int, array: ir.Local) -> str:
        kind = self.prelude.type(Form(storage_name(array.dtype)))
        return f"alignas(16) __shared__ {kind} l{number}[{max(array.count, 1)}];"
