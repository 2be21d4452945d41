"""Builder of native entry points: slots of a device, its functions, counters and lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import Like
from anydim.compiler.native.body import Body, parameter
from anydim.runtime import slots
from anydim.runtime.devices import context

CONTEXT = parameter("context")
_LAUNCH = (
    "entry", "arguments", "operands", "sizes", "parallel", "grain", "scratch", "stride", "flops",
    "moved",
)  # fmt: skip
_COPY = ("target", "source", "bytes", "which")
PARAMETERS: Mapping[int, tuple[str, ...]] = {
    slots.LAUNCH: _LAUNCH,
    slots.COPY_IN: _COPY,
    slots.COPY_OUT: _COPY,
    slots.COPY_WITHIN: _COPY,
    slots.FILL: ("target", "value", "bytes"),
    slots.COPY_FROM: ("target", "origin", "source", "bytes", "which"),
    slots.RECORD: (),
    slots.WAIT: ("event",),
}
_COUNTED = {
    slots.COPY_IN: (context.COPIES_IN, context.BYTES_IN),
    slots.COPY_OUT: (context.COPIES_OUT, context.BYTES_OUT),
    slots.COPY_WITHIN: (context.COPIES_WITHIN, context.BYTES_WITHIN),
}
Written = Callable[["EntryPoint"], None]


class EntryPoint(Body):
    """The body of an entry point."""

    def word(self, word: int) -> ir.Value:
        """Load a slot of the device."""
        return self.load(CONTEXT, word)

    def at(self, word: int) -> ir.Value:
        """Return the address of a device slot."""
        return self.let(CONTEXT + 8 * word)

    def put(self, word: int, value: Like) -> None:
        """Store to a device slot."""
        self.store(CONTEXT, word, value)

    def count(self, word: int, amount: Like = 1) -> None:
        """Add to a counter atomically."""
        self.atomic("add", self.at(word), amount)

    def report(self, verb: int, function: Like, code: Like) -> None:
        """Report the error code of a function."""
        self.call(self.word(context.FAILED), verb, function, code)

    @contextmanager
    def hold_lock(self, device: ir.Value = CONTEXT) -> Iterator[None]:
        """Hold the lock of a device in a `with` block."""
        mutex = self.load(device, context.MUTEX)
        self.call(self.load(device, context.LOCK), mutex)
        yield
        self.call(self.load(device, context.UNLOCK), mutex)


def count_across(body: EntryPoint) -> None:
    """Count a copy between devices: out of the source, into this one."""
    origin, bytes = parameter("origin"), parameter("bytes")
    for of, (copies, moved) in (
        (origin, _COUNTED[slots.COPY_OUT]),
        (CONTEXT, _COUNTED[slots.COPY_IN]),
    ):
        body.atomic("add", body.let(of + 8 * copies), 1)
        body.atomic("add", body.let(of + 8 * moved), bytes)


def symbol(kind: str, verb: str) -> str:
    """Return the symbol of an entry point."""
    return f"anydim_{kind.replace('-', '_').replace(' ', '_')}_{verb}"


def function(kind: str, verb: str, write: Written) -> ir.Function:
    """Return an entry point; it counts the call first."""
    word, body = slots.NAMES[verb], EntryPoint()
    if word == slots.LAUNCH:
        body.count(context.LAUNCHES)
    elif word == slots.WAIT:
        body.count(context.WAITS)
    elif word in _COUNTED:
        copies, bytes = _COUNTED[word]
        body.count(copies)
        body.count(bytes, parameter("bytes"))
    write(body)
    return body.function(symbol(kind, verb), ("context", *PARAMETERS[word]), public=True)
