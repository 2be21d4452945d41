"""A writer of host code: words at addresses, calls.

body = Body()
block = Term(parameter)
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
from anydim.kernels.write.term import Like, Term, constant
from anydim.kernels.write.writer import Writer

ZERO, ONE = constant(0), constant(1)
FALSE, TRUE = constant(False, boolean), constant(True, boolean)


class Body(Writer):
    """The body of a function of host code."""

    def load(self, address: Term, element: Like = 0, dtype: DType = int64) -> Term:
        """What stands at an address, so many elements further."""
        kind = ir.Type(dtype)
        return self.frozen(ir.LoadAt(kind, address.value, _value(element)))

    def store(self, address: Term, element: Like, value: Like) -> None:
        """Write an int64, or what another value is."""
        self.emit(ir.StoreAt(address.value, _value(element), _value(value)))

    def array(self, words: int) -> Term:
        """The address of words that live until the function returns."""
        name = self.fresh("s")
        self.emit(ir.Stack(name, int64, words))
        return self.let(Term(ir.Address(name, ZERO.value)))

    # ---- functions -----------------------------------------------------------------------------

    def call(self, function: str | Term, *arguments: Like) -> None:
        """Call a function by name, or the one at an address."""
        self.emit(ir.Call(_function(function), tuple(map(_value, arguments))))

    def ask(self, function: str | Term, *arguments: Like) -> Term:
        """Call a function; the int64 that it returns."""
        result = ir.Var(ir.INDEX, self.fresh("v"))
        self.emit(ir.Call(_function(function), tuple(map(_value, arguments)), result))
        return Term(result)

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


def parameter(name: str) -> Term:
    """An int64 parameter."""
    return Term(ir.Var(ir.INDEX, name))


def overflows(operation: str, left: Term, right: Term) -> Term:
    """Whether 'add' or 'mul' of two int64s does not fit."""
    return Term(ir.Op(ir.FLAG, f"{operation}_overflows", (left.value, right.value)))


def as_word(flag: Term) -> Term:
    """1 where a flag holds, else 0."""
    return Term(ir.Op(ir.INDEX, "select", (flag.value, ONE.value, ZERO.value)))


def _value(value: Like) -> ir.Value:
    return value.value if isinstance(value, Term) else _word(int(value))


@lru_cache(maxsize=1024)
def _word(value: int) -> ir.Const:
    return ir.Const(ir.INDEX, value)


def _function(function: str | Term) -> str | ir.Value:
    return function if isinstance(function, str) else function.value
