"""A writer of loop IR: what stands in a `with` block becomes the body of a loop or a branch.

A value that memory or a register holds is what it was at that place: it is named there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anydim.base.dtypes import DType, boolean, int64
from anydim.kernels import ir
from anydim.kernels.write.term import Like, Term, constant


class Variable:
    """A register: `v()` is its value here, `v.set(x)` gives it another, `v += x` adds."""

    def __init__(self, code: Writer, name: str, kind: ir.Type) -> None:
        self._code = code
        self._name = name
        self._kind = kind

    def __call__(self) -> Term:
        return self._code.frozen(ir.Get(self._kind, self._name))

    def set(self, value: Like) -> None:
        """The value from here on."""
        wanted = value if isinstance(value, Term) else constant(value, self._kind.dtype)
        self._code.emit(ir.Assign(self._name, wanted.spread(self._kind.lanes).value))

    def __iadd__(self, value: Like) -> Variable:
        self.set(self() + value)
        return self


class Writer:
    """The steps of a function that is being written."""

    def __init__(self) -> None:
        self._blocks: list[list[ir.Step]] = [[]]
        self._count = 0
        self._looking = False

    @property
    def written(self) -> tuple[ir.Step, ...]:
        """The steps so far, all blocks being closed."""
        (steps,) = self._blocks
        return tuple(steps)

    def emit(self, step: ir.Step) -> None:
        """One more step."""
        self._blocks[-1].append(step)

    def fresh(self, letter: str) -> str:
        """A name that nothing has yet."""
        self._count += 1
        return f"{letter}{self._count}"

    def let(self, value: Term) -> Term:
        """Name a value that is used more than once."""
        name = self.fresh("v")
        self.emit(ir.Let(name, value.value))
        return Term(ir.Var(value.value.type, name))

    def frozen(self, value: ir.Value) -> Term:
        """What memory or a register holds now; in a condition of `loop`, at each look at it."""
        return Term(value) if self._looking else self.let(Term(value))

    def variable(self, value: Like, dtype: DType = int64) -> Variable:
        """A register and its first value; a plain number is of type `dtype`, a bool a flag."""
        kind = boolean if isinstance(value, bool) else dtype
        first = value if isinstance(value, Term) else constant(value, kind)
        name = self.fresh("r")
        self.emit(ir.Declare(name, first.value))
        return Variable(self, name, first.value.type)

    @contextmanager
    def _block(self) -> Iterator[list[ir.Step]]:
        self._blocks.append([])
        yield self._blocks[-1]
        self._blocks.pop()

    @contextmanager
    def range(self, start: Like, stop: Like, step: int = 1) -> Iterator[Term]:
        """A loop over start, start + step, ... below stop."""
        low, high = (v if isinstance(v, Term) else constant(v) for v in (start, stop))
        name = self.fresh("i")
        with self._block() as body:
            yield Term(ir.Var(ir.INDEX, name))
        self.emit(ir.For(name, low.value, high.value, constant(step).value, tuple(body)))

    @contextmanager
    def loop(self, condition: Callable[[], Term]) -> Iterator[None]:
        """A loop as long as a condition holds."""
        self._looking = True
        again = condition()
        self._looking = False
        with self._block() as body:
            yield
        self.emit(ir.While(again.value, tuple(body)))

    @contextmanager
    def when(self, condition: Term) -> Iterator[None]:
        """What happens where a condition holds."""
        with self._block() as body:
            yield
        self.emit(ir.If(condition.value, tuple(body)))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """What happens where the condition of the `when` just before does not hold."""
        last = self._blocks[-1].pop()
        assert isinstance(last, ir.If) and not last.otherwise
        with self._block() as body:
            yield
        self.emit(ir.If(last.condition, last.then, tuple(body)))
