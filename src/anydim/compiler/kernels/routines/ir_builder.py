"""A builder for kernels: steps emitted in a `with` block become the body of a loop or a branch.

    code = Code("last_positive", machine)
    x, y = code.input("x0", float32), code.output("y0", int64)
    n = code.size(length)
    with code.range(code.start, code.stop) as row:
        last = code.variable(-1)
        with code.range(0, n) as i:
            with code.when(x[row * n + i] > 0.0):
                last.set(i)
        y[row] = last()
    launch = code.launch(parallel=rows, work=rows * length)

A load, or a read of a variable, is bound to a name at the point of emission, so that later writes
do not change it. Only the condition of `code.loop` is evaluated before every iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anydim.base.dtypes import DType, int64
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.context import SizeParameters
from anydim.compiler.kernels.codegen.writer import SCRATCH, Buffer, Variable, Writer
from anydim.compiler.kernels.ir import apply, select
from anydim.compiler.kernels.launch import Argument, Launch, Machine
from anydim.compiler.kernels.operands import assemble
from anydim.sizes import Box, Condition, Size, align_up, as_size, maximum, settle, simplify

_LINE = 64  # alignment of scratch, in bytes


class Code(Writer):
    """A kernel under construction."""

    def __init__(self, name: str, machine: Machine, box: Box) -> None:
        super().__init__()
        self.name = name
        self.machine = machine
        self.box = box
        self.start = ir.START
        self.stop = ir.STOP
        self._operands: dict[str, ir.Operand] = {}
        self._sizes = SizeParameters()
        self._scratch: Size = as_size(0)
        self._libraries: dict[str, ir.Library] = {}

    # ---- memory and sizes ----------------------------------------------------------------------

    def input(self, name: str, dtype: DType) -> Buffer:
        """A read-only tensor."""
        return self._operand(ir.Operand(name, dtype))

    def output(self, name: str, dtype: DType) -> Buffer:
        """A tensor that is written, and may be read."""
        return self._operand(ir.Operand(name, dtype, written=True))

    def _operand(self, operand: ir.Operand) -> Buffer:
        if self._operands.setdefault(operand.name, operand) != operand:
            raise InternalError(f"'{operand.name}' is declared twice, differently")
        return Buffer(self, operand.name, operand.dtype)

    def scratch(self, dtype: DType, count: Size | int) -> Buffer:
        """Scratch memory of the calling thread for `count` elements."""
        base = self._scratch.divide_exactly(dtype.bytes)
        assert base is not None
        self._scratch = align_up(self._scratch + as_size(count) * dtype.bytes, _LINE)
        return Buffer(self, SCRATCH, dtype, self.size(base))

    def size(self, size: Size | int) -> ir.Value:
        """The value of a size expression."""
        return self._sizes.value(simplify(as_size(size), self.box))

    def holds(self, condition: Condition) -> ir.Value:
        """A condition as a flag."""
        return self._sizes.holds(settle(condition, self.box))

    def call(self, library: ir.Library, name: str, *arguments: ir.Value) -> None:
        """Call a function of a library."""
        self._libraries[library.name] = library
        self.emit(ir.Call(name, arguments))

    # ---- steps ---------------------------------------------------------------------------------

    @contextmanager
    def each(self, flags: ir.Value) -> Iterator[ir.Value]:
        """A loop over the set lanes of a vector of flags, from the lowest on."""
        rest = self.variable(flags.flags)
        with self.loop(lambda: rest().differs(0)):
            bits = rest()
            rest.set(bits & (bits - 1))
            yield self.let(apply("trailing_zeros", bits).as_(int64))

    def bisect(
        self, low: Variable, high: Variable, is_before: Callable[[ir.Value], ir.Value]
    ) -> None:
        """Move `low` up to the first index below `high` that is not before the wanted one."""
        with self.loop(lambda: low() < high()):
            middle = self.let((low() + high()) >> 1)
            before = self.let(is_before(middle))
            high.set(select(before, high(), middle))
            low.set(select(before, middle + 1, low()))

    # ---- launch --------------------------------------------------------------------------------

    def launch(
        self, parallel: Size | int, work: Size | int, grain: Size | int = 1, reason: str = ""
    ) -> Launch:
        """The launch of the kernel over 0:parallel; `work` estimates the accessed elements."""
        operands = tuple(self._operands.values())
        libraries = self._libraries.values()
        kernel = assemble(self.name, operands, self._sizes.names, self.written, libraries=libraries)
        widest = max((operand.dtype.bytes for operand in operands), default=1)
        return Launch(
            kernel=kernel,
            arguments=tuple(Argument(operand.name) for operand in operands),
            sizes=self._sizes.sizes,
            parallel=simplify(as_size(parallel), self.box),
            grain=grain,
            scratch=simplify(maximum(self._scratch, 0), self.box),
            flops=as_size(work),
            moved=as_size(work) * widest,
            schedule=f"{self.name}()",
            reason=reason or "a routine",
        )
