"""The largest value of a symbol at which a size stays within a limit.

A size that is monotone in the symbol is bisected. Any other size is first bisected for some value
that fits; the values above it are split, the upper part first, and a part is dropped where bounds
show that nothing in it fits; so the answer is the largest value even where smaller ones do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.base.errors import InternalError
from anydim.sizes.atoms import Atom, Factor
from anydim.sizes.box import Box, Dim
from anydim.sizes.expression import Size
from anydim.sizes.guard import Guard, holds

LARGEST = 1 << 62  # largest value of a dim
_MAX_STEPS = 200_000


def largest_value(
    needs: Size, name: str, low: int, high: int | None, limit: int,
    guards: Sequence[Guard] = (),
) -> int | None:  # fmt: skip
    """The largest `name` from `low` to `high` with needs <= limit where the guards hold.

    None if there is none. `name` must be the only free symbol; `high` None counts as 2**62.
    """
    high = LARGEST if high is None else high
    demands = [limit - needs, *(size for guard in guards for size in _demands(guard))]

    def fits(value: int) -> bool:
        env = {name: value}
        return needs.evaluate(env) <= limit and all(holds(guard, env) for guard in guards)

    if low > high:
        return None
    if fits(high):
        return high
    if not guards and rises(needs):
        return _bisected(fits, low, high)
    return _searched(demands, fits, name, low, high)


def _bisected(fits: Callable[[int], bool], low: int, high: int) -> int | None:
    """A value that fits next to one that does not, given that `high` does not; for monotone sizes
    the largest that fits."""
    if not fits(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _searched(
    demands: Sequence[Size], fits: Callable[[int], bool], name: str, low: int, high: int
) -> int | None:
    found = _bisected(fits, low, high)  # trying values is cheap, bounding long sizes is not
    parts = [(low, high)] if found is None else [(found, found), (found + 1, high)]
    for _ in range(_MAX_STEPS):
        if not parts:
            return None
        start, stop = parts.pop()
        if fits(stop):
            return stop
        box = Box.of(Dim(name, start, stop))
        if start < stop and all(box.interval(size).high >= 0 for size in demands):
            middle = min((start + stop) // 2, 2 * start)  # below stop, which does not fit
            parts += [(start, middle), (middle + 1, stop)]
    raise InternalError(f"no largest '{name}' for {demands[0]} >= 0 in {_MAX_STEPS} steps")


def _demands(guard: Guard) -> list[Size]:
    """Sizes that are not negative where a guard holds."""
    more = guard.right - guard.left
    return {"==": [more, -more], "!=": [], "<=": [more], "<": [more - 1]}[guard.relation]


def rises(size: Size) -> bool:
    """Whether a size is nondecreasing in its symbols, as far as its form decides.

    Symbols are never negative.
    """
    return all(
        not monomial or (coefficient > 0 and all(map(_rises, monomial)))
        for monomial, coefficient in size.coefficients.items()
    )


def _rises(atom: Factor) -> bool:
    """Whether an atom is nondecreasing and never negative."""
    if not isinstance(atom, Atom):
        return True
    if atom.function in ("min", "max"):
        return all(rises(part) and _starts_at_zero(part) for part in atom.arguments)
    if atom.function == "where":
        test, then, otherwise = atom.arguments
        more = then - otherwise
        found = all(map(rises, (test, otherwise, more)))
        return found and _starts_at_zero(otherwise) and _starts_at_zero(more)
    if atom.function != "floordiv":
        return False
    above, below = atom.arguments
    return (below.constant or 0) > 0 and rises(above) and _starts_at_zero(above)


def _starts_at_zero(size: Size) -> bool:
    """Whether a nondecreasing size is not negative where all symbols are 0."""
    return size.substitute(dict.fromkeys(size.symbols, 0)).constant >= 0  # type: ignore[operator]
