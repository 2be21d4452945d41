"""A writer of host code: words at addresses, calls.

body = Body()
block = parameter
size = body.load(block, 3)                      the word number 3 from an address on
with body.when(size > 10):
    body.give(1)                                leaves the function with a result
body.store(block, 4, size * 2)
body.give(0)
function = body.function("name", ("block",), public=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from anydim.base.dtypes import DType, boolean, int64
from anydim.kernels import ir
from anydim.kernels.codegen.writer import Writer
from anydim.kernels.ir import Like, constant, select

ZERO, ONE = constant(0), constant(1)
FALSE, TRUE = constant(False, boolean), constant(True, boolean)


class Body(Writer):
    """The body of a function of host code."""

    def load(self, address: ir.Value, element: Like = 0, dtype: DType = int64) -> ir.Value:
        """What stands at an address, so many elements further."""
        kind = ir.Type(dtype)
        return self.frozen(ir.LoadAt(kind, address, _value(element)))

    def store(self, address: ir.Value, element: Like, value: Like) -> None:
        """Write an int64, or what another value is."""
        self.emit(ir.StoreAt(address, _value(element), _value(value)))

    def array(self, words: int) -> ir.Value:
        """The address of words that live until the function returns."""
        name = self.fresh("s")
        self.emit(ir.Stack(name, int64, words))
        return self.let(ir.Address(name, ZERO))

    # ---- functions -----------------------------------------------------------------------------

    def call(self, function: str | ir.Value, *arguments: Like) -> None:
        """Call a function by name, or the one at an address."""
        self.emit(ir.Call(function, tuple(map(_value, arguments))))

    def ask(self, function: str | ir.Value, *arguments: Like) -> ir.Value:
        """Call a function; the int64 that it returns."""
        result = ir.Var(ir.INDEX, self.fresh("v"))
        self.emit(ir.Call(function, tuple(map(_value, arguments)), result))
        return result

    def give(self, value: Like) -> None:
        """Leave the function with a result."""
        self.emit(ir.Return(_value(value)))

    def leave(self) -> None:
        """Leave the function."""
        self.emit(ir.Return())

    def function(
        self, name: str, parameters: Sequence[str], public: bool = False, result: bool = True,
        quick: bool = False,
    ) -> ir.Function:  # fmt: skip
        """What has been written, as a function of int64s; `result`: it returns one."""
        taken = tuple(ir.Scalar(parameter) for parameter in parameters)
        returned = ir.INDEX if result else None
        return ir.Function(name, taken, self.written, public, returned, quick)


def parameter(name: str) -> ir.Value:
    """An int64 parameter."""
    return ir.Var(ir.INDEX, name)


def overflows(operation: str, left: ir.Value, right: ir.Value) -> ir.Value:
    """Whether 'add' or 'mul' of two int64s does not fit."""
    return ir.Op(ir.FLAG, f"{operation}_overflows", (left, right))


def as_word(flag: ir.Value) -> ir.Value:
    """1 where a flag holds, else 0."""
    return select(flag, ONE, ZERO)


def _value(value: Like) -> ir.Value:
    return value if isinstance(value, ir.Value) else _word(int(value))


@lru_cache(maxsize=1024)
def _word(value: int) -> ir.Const:
    return ir.Const(ir.INDEX, value)
