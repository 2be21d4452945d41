"""Promise: where a relation of sizes does not hold, the error says what the size must be."""

import pytest

from anydim.sizes import Box, Dim, Guard, as_size, merged_guards, parse, remedy

N, M = Dim("n", 0, None), Dim("m", 0, 512)
BOX = Box((N, M))


def guard(left: str, relation: str, right: str) -> Guard:
    return Guard(parse(left), relation, parse(right), "why")


@pytest.mark.parametrize("left,relation,right,came,expected", [
    ("n", "==", "32*(n//32)", 33, "'n' must be a multiple of 32, such as 32 or 64"),
    ("n", "==", "32*(n//32)", 1000, "'n' must be a multiple of 32, such as 992 or 1024"),
    ("n + 2", "==", "4*((n + 2)//4)", 7,
     "'n' must be 2 more than a multiple of 4, such as 6 or 10"),
    ("(n - 1)*(2*(n//2) - n)", "==", "0", 9, "'n' must be 1 or a multiple of 2, such as 8 or 10"),
    ("n", "==", "6", 7, "'n' must be 6"),
    ("3", "<=", "n", 2, "'n' must be at least 3"),
    ("n", "<", "12", 20, "'n' must be at most 11"),
    ("n", "!=", "5", 5, "'n' must be other than 5"),
    ("n*n", "==", "36 + 5*n", 8, "'n' must be 9"),
    ("(n - 7)*(n - 11)", "==", "0", 9, "'n' must be another size, such as 7 or 11"),
    ("n", "==", "100000", 1, ""),
    ("m//(n - 1)", "==", "3", 1, "'n' must be 2 at m = 3"),
])  # fmt: skip
def test_what_a_size_must_be(
    left: str, relation: str, right: str, came: int, expected: str
) -> None:
    assert remedy(guard(left, relation, right), {"n": came, "m": 3}, BOX) == expected


@pytest.mark.parametrize("left,right,n,m,expected", [
    ("m*n", "124", 3, 5, "no 'n' fits at m = 5: 124 is no multiple of 5"),
    ("m*n", "124", 30, 4, "'n' must be 31 at m = 4"),
    ("m*n", "124", 0, 0, ""),
    ("2*m*n", "7", 7, 1, "no 'n' fits at m = 1: 7 is no multiple of 2"),
    ("m*n + 1", "124", 5, 5, ""),
])  # fmt: skip
def test_a_number_that_is_no_multiple(left: str, right: str, n: int, m: int, expected: str) -> None:
    assert remedy(guard(left, "==", right), {"n": n, "m": m}, BOX) == expected


def test_it_is_the_dim_that_more_sizes_are_right_for() -> None:
    found = remedy(guard("3*min(m, 1)", "<=", "min(m, 1)*n"), {"n": 2, "m": 4}, BOX)
    assert found == "'n' must be at least 3 at m = 4"


def test_all_other_dims_are_said() -> None:
    box = Box((N, M, Dim("k", 0, 512)))
    found = remedy(guard("n", "==", "3*m + 2*k"), {"n": 9, "m": 2, "k": 3}, box)
    assert found == "'m' must be 1 at k = 3, n = 9"


def test_the_other_dims_stay() -> None:
    found = remedy(guard("n", "==", "2*m"), {"n": 8, "m": 3}, BOX)
    assert found == "'m' must be 4 at n = 8"
    found = remedy(guard("n", "==", "2*m"), {"n": 9, "m": 3}, BOX)
    assert found == "'n' must be 6 at m = 3"


def test_bounds_of_the_dim_are_kept() -> None:
    box = Box((Dim("n", 0, 60),))
    assert remedy(guard("n", "==", "32*(n//32)"), {"n": 40}, box) == (
        "'n' must be another size, such as 32"
    )


def test_one_relation_is_checked_once_and_says_from_where() -> None:
    first, second = guard("n", "==", "m"), Guard(as_size(N.size), "==", M.size, "again")
    (kept,) = merged_guards([], [first, second], "node a")
    assert kept.message == "node a: why"
    assert merged_guards([kept], [second], "node b") == [kept]
