"""A builder of loop IR: steps emitted in a `with` block become the body of a loop or a branch.

A value read from memory or a register is bound to a name at the point of emission, so that later
writes do not change it. A prefix separates the builder's names from other steps of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from anydim.base.dtypes import DType, boolean, int64
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, quotient, round_down
from anydim.compiler.kernels.ir import Like, as_value, least

SCRATCH = "scratch"  # the bytes of the calling thread


class Variable:
    """A register: `v()` reads it, `v.set(x)` assigns it, `v += x` adds to it."""

    def __init__(self, code: Writer, name: str, kind: ir.Type) -> None:
        self._code = code
        self._name = name
        self._kind = kind

    def __call__(self) -> ir.Value:
        return self._code.frozen(ir.Get(self._kind, self._name))

    def set(self, value: Like) -> None:
        """Assign the register."""
        wanted = as_value(value, self._kind.dtype).spread(self._kind.lanes)
        self._code.emit(ir.Assign(self._name, wanted))

    def __iadd__(self, value: Like) -> Variable:
        self.set(self() + value)
        return self


class Writer:
    """Builds the steps of a function."""

    def __init__(self, prefix: str = "") -> None:
        self._blocks: list[list[ir.Step]] = [[]]
        self._prefix = prefix  # of all names, for functions with other steps as well
        self._count = 0
        self._looking = False

    @property
    def written(self) -> tuple[ir.Step, ...]:
        """The steps so far; all blocks must be closed."""
        (steps,) = self._blocks
        return tuple(steps)

    def emit(self, step: ir.Step) -> None:
        """Append a step."""
        self._blocks[-1].append(step)

    def fresh(self, letter: str) -> str:
        """An unused name."""
        self._count += 1
        return f"{self._prefix}{letter}{self._count}"

    def take(self, steps: Iterable[ir.Step], position: int | None = None) -> None:
        """Insert steps emitted elsewhere, at an earlier `here` or at the end."""
        block = self._blocks[-1]
        at = len(block) if position is None else position
        block[at:at] = steps

    @property
    def here(self) -> int:
        """The current position in the open block."""
        return len(self._blocks[-1])

    def let(self, value: ir.Value, name: str = "") -> ir.Value:
        """Bind a value to a name, for several uses."""
        name = name or self.fresh("v")
        self.emit(ir.Let(name, value))
        return ir.Var(value.type, name)

    def frozen(self, value: ir.Value) -> ir.Value:
        """The current contents of memory or a register; in a condition of `loop`, read at each
        evaluation."""
        return value if self._looking else self.let(value)

    def variable(self, value: Like, dtype: DType = int64) -> Variable:
        """A register with an initial value; a plain number is of type `dtype`, a bool is a flag."""
        first = as_value(value, boolean if isinstance(value, bool) else dtype)
        name = self.fresh("r")
        self.emit(ir.Declare(name, first))
        return Variable(self, name, first.type)

    def stack(self, dtype: DType, count: int) -> Buffer:
        """A small local array."""
        name = self.fresh("s")
        self.emit(ir.Stack(name, dtype, count))
        return Buffer(self, name, dtype)

    @contextmanager
    def block(self) -> Iterator[list[ir.Step]]:
        """Collect the steps emitted inside in a list of their own."""
        self._blocks.append([])
        yield self._blocks[-1]
        self._blocks.pop()

    @contextmanager
    def range(
        self, start: Like, stop: Like, step: Like = 1, name: str = "", *, unrolled: bool = False
    ) -> Iterator[ir.Value]:  # fmt: skip
        """A loop over start, start + step, ... below stop; see `ir.For` for `unrolled`."""
        low, high, by = map(as_value, (start, stop, step))
        name = name or self.fresh("i")
        with self.block() as body:
            yield ir.Var(ir.INDEX, name)
        self.emit(ir.For(name, low, high, by, tuple(body), unrolled=unrolled))

    @contextmanager
    def loop(self, condition: Callable[[], ir.Value]) -> Iterator[None]:
        """A loop that runs while a condition holds."""
        self._looking = True
        again = condition()
        self._looking = False
        with self.block() as body:
            yield
        self.emit(ir.While(again, tuple(body)))

    @contextmanager
    def when(self, condition: ir.Value) -> Iterator[None]:
        """Steps that run if a condition holds."""
        with self.block() as body:
            yield
        self.emit(ir.If(condition, tuple(body)))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The else branch of the preceding `when`."""
        last = self._blocks[-1].pop()
        assert isinstance(last, ir.If) and not last.otherwise
        with self.block() as body:
            yield
        self.emit(ir.If(last.condition, last.then, tuple(body)))

    def sweep(
        self, start: Like, stop: ir.Value, lanes: int,
        body: Callable[[ir.Value, ir.Value | None], None],
        whole: ir.Value | None = None, mask: ir.Value | None = None,
    ) -> None:  # fmt: skip
        """`body(index of lane 0, mask)` for whole vectors (no mask), then for the remainder.

        Where whole vectors end, and the mask of the remainder, may be known before.
        """
        low = as_value(start)
        if whole is None:
            whole = self.let(low + round_down(stop - low, lanes))
        with self.range(low, whole, lanes) as at:
            body(at, None)
        if lanes > 1:
            with self.when(whole < stop):
                rest = self.let(first_lanes(stop - whole, lanes)) if mask is None else mask
                body(whole, rest)

    def blocks(
        self, start: Like, whole: Like, stop: Like, step: int, rest: int = 0, name: str = ""
    ) -> Iterator[tuple[ir.Value, bool]]:  # fmt: skip
        """Two loops: start to `whole` by `step`, and the remainder by `rest` (0: `step`).

        Yields the index, and whether it is the remainder; what is emitted until the next one is
        the body.
        """
        for low, high, by, last in ((start, whole, step, False), (whole, stop, rest or step, True)):
            with self.range(low, high, by, name) as at:
                yield at, last

    @contextmanager
    def overlapping(
        self, start: Like, stop: ir.Value, lanes: int, name: str = "", clamped: str = ""
    ) -> Iterator[ir.Value]:  # fmt: skip
        """A loop over blocks of `lanes`, the last of which ends at `stop`; yields their starts.

        At least `lanes` from start to stop.
        """
        with self.range(start, stop, lanes, name) as at:
            yield self.let(least(at, stop - lanes), clamped)

    def split(self, number: ir.Value, inner: Sequence[ir.Value]) -> list[ir.Value]:
        """Delinearize the index of collapsed loops; the last loop varies fastest, and `inner` holds
        the extents of all but the first."""
        found: list[ir.Value] = []
        for extent in reversed(inner):
            above = self.let(quotient(number, extent))
            found.append(self.let(number - above * extent))
            number = above
        return [number, *reversed(found)]

    # ---- threads -------------------------------------------------------------------------------

    def atomic(self, operation: str, address: ir.Value, *arguments: Like) -> ir.Value:
        """An atomic operation on the int64 at an address; returns the previous value."""
        result = ir.Var(ir.INDEX, self.fresh("v"))
        self.emit(ir.Atomic(operation, address, tuple(map(as_value, arguments)), result))
        return result

    def publish(self, address: ir.Value, value: Like) -> None:
        """An atomic store."""
        self.emit(ir.Atomic("store", address, (as_value(value),)))


class Buffer:
    """Memory with elements of one type, starting at `base`: `b[i]`, `b[i] = value`."""

    def __init__(self, code: Writer, name: str, dtype: DType, base: ir.Value | None = None) -> None:
        self._code = code
        self._name = name
        self._base = base
        self.dtype = dtype

    def part(self, start: Like) -> Buffer:
        """The same memory with another base element."""
        return Buffer(self._code, self._name, self.dtype, self._offset(start))

    def _offset(self, index: Like) -> ir.Value:
        return as_value(index) if self._base is None else self._base + as_value(index)

    def address(self, index: Like) -> ir.Address:
        """The address of an element, for a function call."""
        scale = self.dtype.bytes if self._name == SCRATCH else 1
        return ir.Address(self._name, (self._offset(index) * scale))

    def load(self, index: Like, lanes: int = 1, where: ir.Value | None = None) -> ir.Value:
        """Elements from `index` on; lanes where `where` is false are 0 and not accessed."""
        kind = ir.Type(self.dtype, lanes)
        return self._code.frozen(ir.Load(kind, self._name, self._offset(index), where))

    def gather(self, indices: ir.Value, where: ir.Value | None = None) -> ir.Value:
        """One element per lane of `indices`."""
        kind = ir.Type(self.dtype, indices.type.lanes)
        offsets = indices if self._base is None else self._base + indices
        return self._code.frozen(ir.Gather(kind, self._name, offsets, where))

    def store(self, index: Like, value: Like, where: ir.Value | None = None) -> None:
        """Store the lanes of a value from `index` on, where `where` holds."""
        wanted = as_value(value, self.dtype)
        if wanted.dtype != self.dtype:
            raise InternalError(f"{wanted.dtype} is stored in '{self._name}' of {self.dtype}")
        self._code.emit(ir.Store(self._name, self._offset(index), wanted, where))

    def __getitem__(self, index: Like) -> ir.Value:
        return self.load(index)

    def __setitem__(self, index: Like, value: Like) -> None:
        self.store(index, value)
