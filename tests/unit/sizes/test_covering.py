"""What coefficients tell of two sizes holds at every point of the box."""

from __future__ import annotations

from hypothesis import given

from anydim.sizes import Box, Covering, Dim, Size, as_size
from tests.unit.sizes.strategies import boxes, checked, defined, points, sizes

BOX = Box.of(Dim("n"), Dim("m"))


def unrounded(size: Size, box: Box) -> list[Size]:
    atoms = dict.fromkeys(atom for monomial, _ in size.monomials for atom in monomial)
    found = (Covering(box).without_rounding(size, atom) for atom in atoms)
    return [each for each in found if each is not None]


def covers(upper: str, lower: str) -> bool:
    return Covering(BOX).covers(as_size(upper), as_size(lower))


def test_coefficients_decide() -> None:
    assert covers("3*n*m + n", "2*n*m")
    assert covers("64*((n + 7)//8) + 1", "64*((n + 7)//8)")
    assert not covers("3*n", "2*m")
    assert not covers("n - m", "0*n")
    assert not covers("2*(n - 5)//3", "(n - 5)//3")  # may be negative


def test_the_least_size_above_two() -> None:
    joined = Covering(BOX).joined(as_size("3*n + 5*m"), as_size("4*n + 2*m + 7"))
    assert joined == as_size("4*n + 5*m + 7")
    assert Covering(BOX).joined(as_size("(n - m)//3"), as_size("n")) is None
    assert Covering(BOX).joined(as_size("(m - n)//3"), as_size("n")) is None


def test_rounded_quotients_go() -> None:
    assert unrounded(as_size("64*((3*n*m + 7)//8)"), BOX) == [as_size("64*n*m")]
    assert unrounded(as_size("64*((17*n + 15)//16) + m"), BOX) == [as_size("128*n + m")]
    assert unrounded(as_size("64*((n + 40)//8)"), BOX) == [as_size("64*n + 320")]
    assert unrounded(as_size("0 - (n + 7)//8"), BOX) == []


@checked
@given(sizes(), sizes(), boxes(constrained=True))
def test_what_is_told_holds_everywhere(left: Size, right: Size, box: Box) -> None:
    covering = Covering(box)
    above = [right] if covering.covers(right, left) else []
    above += [size for size in (covering.joined(left, right),) if size is not None]
    above += unrounded(left, box)
    for env in points(box):
        value = defined(left, env)
        for size in above:
            other = defined(size, env)
            assert value is None or other is None or value <= other
        if value is not None and covering.not_negative(left):
            assert value >= 0


def test_quotients_of_quotients_are_covered() -> None:
    assert covers("n*((m + 1)//2)", "n*((m + 3)//4)")
    assert covers("64*((n*((m + 1)//2) + 7)//8)", "64*((n*((m + 3)//4) + 7)//8)")
    assert covers("n", "(n + 1)//2")
    assert covers("2*(n//3)", "n//3 + n//6")
    assert not covers("(m + 3)//4", "(m + 1)//2")
    assert not covers("n//2", "m//2")
    assert not covers("n//2", "(n + 1)//2")
    assert not covers("n//3", "n//6 + n//9")


def test_minima_are_covered_by_what_they_are_of() -> None:
    assert covers("n//2", "min(n//2, m)")
    assert covers("n//2", "max(n//4, n//6)")
    assert not covers("n//2", "max(n//4, m)")
