"""Dims from the symbols of torch's shapes: their names and bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from anydim.base.errors import OptionError
from anydim.base.text import quote_list
from anydim.sizes import Dim

if TYPE_CHECKING:
    from anydim.compiler.frontends.torch.builder import TorchBuilder

_SPECIALISED = 2  # torch's lower bound of a free axis without one: it may be 0 and 1
_LARGEST = 1 << 60  # bounds from here on are none


class _Sources(Protocol):
    constants: Mapping[str, Any]
    names: Mapping[str, str]
    ranges: Mapping[Any, Any]
    named: Mapping[tuple[str, int], str]
    dims: Mapping[str, Dim]


class Naming:
    """Declares the dims of a program's inputs.

    A symbol has the name that the user gave to one of its axes, or else the name of its first
    input and axis: `x.0`. Of an axis whose size is an expression of several symbols, each has a
    name of its own: `x.0.s1`.
    """

    def __init__(self, program: Any, builder: TorchBuilder) -> None:
        self.program: _Sources = program
        self.builder = builder

    def declare(self, placeholders: Sequence[Any]) -> None:
        """Declare a dim for each symbol in the shapes of inputs. Raises OptionError."""
        found: dict[str, tuple[Any, str, bool]] = {}
        for symbol, name, is_given in self._axes(placeholders):
            if symbol.name not in found or (is_given and not found[symbol.name][2]):
                found[symbol.name] = (symbol, name, is_given)
        numbers = self._numbers(placeholders)
        found = {name: each for name, each in found.items() if name not in numbers}
        names = [name for _, name, _ in found.values()]
        unknown = [name for name in self.program.dims if name not in names]
        if unknown:
            raise OptionError(
                f"dims: the program has no dim {quote_list(unknown)}",
                f"its dims are {quote_list(names) or 'none'}",
            )
        for symbol, name, _ in found.values():
            low, high = self.range_of(symbol)
            given = self.program.dims.get(name)
            if given is not None:
                low, high = _narrow_bounds(name, (low, high), given)
            self.builder.symbols[symbol.name] = self.builder.dim(name, low, high)

    def _numbers(self, placeholders: Sequence[Any]) -> set[str]:
        """Symbols of SymInt inputs that are no size of an axis."""
        expressions = [getattr(node.meta.get("val"), "node", None) for node in placeholders]
        given = {str(each.expr) for each in expressions if each is not None}
        alone = {
            str(getattr(getattr(size, "node", None), "expr", None))
            for node in placeholders for size in getattr(node.meta.get("val"), "shape", ())
        }  # fmt: skip
        return given - alone

    def _axes(self, placeholders: Sequence[Any]) -> Iterator[tuple[Any, str, bool]]:
        """(symbol, name, whether the user gave it) of each axis of an input."""
        for node in placeholders:
            value = node.meta.get("val")
            if node.name in self.program.constants or not hasattr(value, "shape"):
                continue
            own = self.program.names.get(node.name, node.name)
            for axis, size in enumerate(value.shape):
                expression = getattr(getattr(size, "node", None), "expr", None)
                given = self.program.named.get((node.name, axis))
                symbols = sorted(getattr(expression, "free_symbols", ()), key=str)
                for symbol in symbols:
                    alone = given is not None and expression == symbol
                    name = f"{own}.{axis}" + (f".{symbol}" if len(symbols) > 1 else "")
                    yield symbol, (given if alone and given else name), alone

    def range_of(self, symbol: Any) -> tuple[int, int | None]:
        """The bounds of a symbol that is a size."""
        low, high = self.limits_of(symbol)
        return 0 if low in (None, _SPECIALISED) else low, high

    def limits_of(self, symbol: Any) -> tuple[int | None, int | None]:
        """The bounds of a symbol in the program; None if it has none."""
        bounds = self.program.ranges.get(symbol)
        return (None, None) if bounds is None else (_whole(bounds.lower), _whole(bounds.upper))


def _whole(bound: Any) -> int | None:
    """A bound as a number; None if there is none."""
    try:
        number = int(bound)
    except (OverflowError, TypeError, ValueError, AttributeError):
        return None
    return number if abs(number) < _LARGEST else None


def _narrow_bounds(name: str, own: tuple[int, int | None], given: Dim) -> tuple[int, int | None]:
    """Applies the user's bounds; OptionError if the program was exported for narrower ones."""
    low, high = own
    too_low = given.lo < low
    too_high = high is not None and given.hi is not None and given.hi > high
    if too_low or too_high:
        raise OptionError(
            f"dims: '{name}' is {given.lo}..{given.hi}, but the program was exported for "
            f"{low}..{'' if high is None else high}",
            "export it with wider bounds: torch.export.Dim(name, min=..., max=...)",
        )
    return given.lo, high if given.hi is None else given.hi
