"""What native verbs are written with: the words of a device, its functions, counters and lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from anydim.devices import words
from anydim.kernels import ir
from anydim.kernels.ir import Like
from anydim.native.body import Body, parameter
from anydim.runtime import home

CONTEXT = parameter("context")
_LAUNCH = (
    "entry", "arguments", "operands", "sizes", "parallel", "grain", "scratch", "stride", "flops",
    "moved",
)  # fmt: skip
_COPY = ("target", "source", "bytes", "which")
PARAMETERS: Mapping[int, tuple[str, ...]] = {
    home.LAUNCH: _LAUNCH,
    home.COPY_IN: _COPY,
    home.COPY_OUT: _COPY,
    home.COPY_WITHIN: _COPY,
    home.FILL: ("target", "value", "bytes"),
    home.COPY_FROM: ("target", "origin", "source", "bytes", "which"),
    home.RECORD: (),
    home.WAIT: ("event",),
}
_COUNTED = {
    home.COPY_IN: (words.COPIES_IN, words.BYTES_IN),
    home.COPY_OUT: (words.COPIES_OUT, words.BYTES_OUT),
    home.COPY_WITHIN: (words.COPIES_WITHIN, words.BYTES_WITHIN),
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
        self.call(self.word(words.FAILED), verb, function, code)

    @contextmanager
    def locked(self, context: ir.Value = CONTEXT) -> Iterator[None]:
        """No other thread is in such a block of the device; it is not left within."""
        mutex = self.load(context, words.MUTEX)
        self.call(self.load(context, words.LOCK), mutex)
        yield
        self.call(self.load(context, words.UNLOCK), mutex)


def count_across(body: Verb) -> None:
    """A copy from another device is one out of it, and one in here."""
    origin, bytes = parameter("origin"), parameter("bytes")
    for of, (copies, moved) in (
        (origin, _COUNTED[home.COPY_OUT]),
        (CONTEXT, _COUNTED[home.COPY_IN]),
    ):
        body.atomic("add", body.let(of + 8 * copies), 1)
        body.atomic("add", body.let(of + 8 * moved), bytes)


def symbol(kind: str, verb: str) -> str:
    """What the function of a verb is called."""
    return f"anydim_{kind.replace('-', '_').replace(' ', '_')}_{verb}"


def function(kind: str, verb: str, write: Written) -> ir.Function:
    """A verb, which counts what it is asked for first."""
    word, body = home.NAMES[verb], Verb()
    if word == home.LAUNCH:
        body.count(words.LAUNCHES)
    elif word == home.WAIT:
        body.count(words.WAITS)
    elif word in _COUNTED:
        copies, bytes = _COUNTED[word]
        body.count(copies)
        body.count(bytes, parameter("bytes"))
    write(body)
    return body.function(symbol(kind, verb), ("context", *PARAMETERS[word]), public=True)
