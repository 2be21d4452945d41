"""C identifiers for the names of loop IR, within a function and for functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

# keywords of C, OpenCL C and C++
_KEYWORDS = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef
    union unsigned void volatile while asm typeof linux unix main slot
    half quad complex imaginary bool true false uchar ushort uint ulong size_t ptrdiff_t intptr_t
    uintptr_t kernel global local constant private generic pipe uniform event_t sampler_t
    and and_eq bitand bitor catch class compl const_cast constexpr decltype delete dynamic_cast
    explicit export friend mutable namespace new noexcept not not_eq nullptr operator or or_eq
    protected public reinterpret_cast requires static_assert static_cast template this throw try
    typeid typename using virtual wchar_t xor xor_eq""".split()  # noqa: SIM905
)
_TYPE_OR_HELPER = re.compile(r"[fiu](8|16|32|64)(x\d+)?(_at)?|.*_[fiu](8|16|32|64)(x\d+)?")
_OTHER = re.compile(r"[^A-Za-z0-9_]")


def identifier(name: str) -> str:
    """Replace all characters that are not allowed in a C identifier."""
    text = _OTHER.sub("_", name)
    if text in _KEYWORDS or _TYPE_OR_HELPER.fullmatch(text) or not text:
        text += "_"
    return f"_{text}" if text[0].isdigit() else text


def is_identifier(name: str) -> bool:
    return identifier(name) == name


class Scope:
    """The names of a function, by block.

    A visible name gets a number, so that no declaration shadows another one, or a function.
    """

    def __init__(self, functions: Iterable[str] = ()) -> None:
        self._taken = {identifier(name): name for name in functions}  # C name -> loop IR name
        self._names: dict[str, str] = {}

    def declare(self, name: str) -> str:
        """Return a new C name for a name of loop IR."""
        base = identifier(name)
        text, number = base, 1
        while text in self._taken:
            number += 1
            text = f"{base}_{number}"
        self._taken[text] = name
        self._names[name] = text
        return text

    def get(self, name: str) -> str | None:
        """Return the C name of a visible name."""
        return self._names.get(name)

    @contextmanager
    def block(self) -> Iterator[None]:
        taken, names = dict(self._taken), dict(self._names)
        yield
        self._taken, self._names = taken, names
