"""Builder of host code: loads and stores of 8-byte slots, calls.

body = Body()
block = parameter("block")
size = body.load(block, 3)                      slot 3 from an address on
with body.when(size > 10):
    body.give(1)                                return 1
body.store(block, 4, size * 2)
body.give(0)
function = body.function("name", ("block",), public=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from anydim.base.dtypes import DType, boolean, int64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import Like, constant, select

ZERO, ONE = constant(0), constant(1)
FALSE, TRUE = constant(False, boolean), constant(True, boolean)


class Body(Writer):
    """The body of a host function."""

    def load(self, address: ir.Value, element: Like = 0, dtype: DType = int64) -> ir.Value:
        """Load the element at an address plus an offset in elements."""
        kind = ir.Type(dtype)
        return self.frozen(ir.LoadAt(kind, address, _value(element)))

    def store(self, address: ir.Value, element: Like, value: Like) -> None:
        """Store an int64, or a value in its own dtype."""
        self.emit(ir.StoreAt(address, _value(element), _value(value)))

    def array(self, words: int) -> ir.Value:
        """Return the address of 8-byte slots in the stack frame of the function."""
        name = self.fresh("s")
        self.emit(ir.Stack(name, int64, words))
        return self.let(ir.Address(name, ZERO))

    def table(self, numbers: tuple[int, ...]) -> ir.Value:
        """Return the address of constant int32s."""
        name = self.fresh("s")
        self.emit(ir.Table(name, numbers))
        return self.let(ir.Address(name, ZERO))

    # ---- functions -----------------------------------------------------------------------------

    def call(self, function: str | ir.Value, *arguments: Like) -> None:
        """Call a function by name or address."""
        self.emit(ir.Call(function, tuple(map(_value, arguments))))

    def ask(self, function: str | ir.Value, *arguments: Like) -> ir.Value:
        """Call a function; returns its int64 result."""
        result = ir.Var(ir.INDEX, self.fresh("v"))
        self.emit(ir.Call(function, tuple(map(_value, arguments)), result))
        return result

    def give(self, value: Like) -> None:
        """Return a value."""
        self.emit(ir.Return(_value(value)))

    def leave(self) -> None:
        """Return without a value."""
        self.emit(ir.Return())

    def function(
        self, name: str, parameters: Sequence[str], public: bool = False, result: bool = True,
        quick: bool = False,
    ) -> ir.Function:  # fmt: skip
        """Return the emitted code as a function of int64s; `result`: it returns one."""
        taken = tuple(ir.Scalar(parameter) for parameter in parameters)
        returned = ir.INDEX if result else None
        return ir.Function(name, taken, self.written, public, returned, quick)


def parameter(name: str) -> ir.Value:
    """Return an int64 parameter."""
    return ir.Var(ir.INDEX, name)


def overflows(operation: str, left: ir.Value, right: ir.Value) -> ir.Value:
    """Return the flag that 'add' or 'mul' of two int64s overflows."""
    return ir.Op(ir.FLAG, f"{operation}_overflows", (left, right))


def as_int64(flag: ir.Value) -> ir.Value:
    """Return 1 if a flag holds, otherwise 0."""
    return select(flag, ONE, ZERO)


def _value(value: Like) -> ir.Value:
    return value if isinstance(value, ir.Value) else _word(int(value))


@lru_cache(maxsize=1024)
def _word(value: int) -> ir.Const:
    return ir.Const(ir.INDEX, value)
