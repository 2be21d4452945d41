"""What native verbs are written with: the words of a device, its functions, counters and lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from anydim.devices import context
from anydim.kernels import ir
from anydim.kernels.ir import Like
from anydim.native.body import Body, parameter
from anydim.runtime import slots

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
Written = Callable[["Verb"], None]


class Verb(Body):
    """The body of a function of a device."""

    def word(self, word: int) -> ir.Value:
        """What a word of the device holds."""
        return self.load(CONTEXT, word)

    def at(self, word: int) -> ir.Value:
        """Where a word of the device is."""
        return self.let(CONTEXT + 8 * word)

    def put(self, word: int, value: Like) -> None:
        """Write a word of the device."""
        self.store(CONTEXT, word, value)

    def count(self, word: int, amount: Like = 1) -> None:
        """Threads count together."""
        self.atomic("add", self.at(word), amount)

    def tell(self, verb: int, function: Like, code: Like) -> None:
        """An error for a code that a function gave."""
        self.call(self.word(context.FAILED), verb, function, code)

    @contextmanager
    def locked(self, device: ir.Value = CONTEXT) -> Iterator[None]:
        """Hold the lock of a device within the block."""
        mutex = self.load(device, context.MUTEX)
        self.call(self.load(device, context.LOCK), mutex)
        yield
        self.call(self.load(device, context.UNLOCK), mutex)


def count_across(body: Verb) -> None:
    """A copy from another device is one out of it, and one in here."""
    origin, bytes = parameter("origin"), parameter("bytes")
    for of, (copies, moved) in (
        (origin, _COUNTED[slots.COPY_OUT]),
        (CONTEXT, _COUNTED[slots.COPY_IN]),
    ):
        body.atomic("add", body.let(of + 8 * copies), 1)
        body.atomic("add", body.let(of + 8 * moved), bytes)


def symbol(kind: str, verb: str) -> str:
    """What the function of a verb is called."""
    return f"anydim_{kind.replace('-', '_').replace(' ', '_')}_{verb}"


def function(kind: str, verb: str, write: Written) -> ir.Function:
    """A verb, which counts what it is asked for first."""
    word, body = slots.NAMES[verb], Verb()
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
