"""Checked indices: where they are put, what can be read off them, and that they print."""

from __future__ import annotations

import pytest

from anydim.base.dtypes import float32, int32, int64
from anydim.base.errors import LanguageError
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.group_text import parse_group
from anydim.lang.surface.parser import parse_definition
from anydim.lang.surface.printer import print_group
from anydim.lang.tree import Group, TensorType
from anydim.lang.tree.bounds_checks import (
    active_checks,
    checks,
    has_checks,
    index_from_end,
    index_tensor,
    number_of,
    renumber_checks,
    size_of,
)
from anydim.sizes import Box, Dim, as_size

BOX = Box.of(Dim("N", 0, 99), Dim("M", 1, 99), Dim("L", 0, 99))


def group(body: str, indices=int64) -> Group:
    text = f"def f(T(N) x, T(M) z, I(L) i, I(L) j) -> (y) {{ y(l) = {body} where l in 0:L }}"
    kinds = ((float32, "N"), (float32, "M"), (indices, "L"), (indices, "L"))
    types = [TensorType(kind, (as_size(size),)) for kind, size in kinds]
    return instantiate(parse_definition(text), types, {}, BOX)


def found(body: str, indices=int64):
    return list(checks(group(body, indices).statements[0].body))


def test_what_data_decides_is_checked():
    ((tensor, check),) = found("x(i(l))")
    assert tensor == "x" and size_of(check) == as_size("N") and number_of(check) == 0
    assert index_tensor(check) == "i" and index_from_end(check) is None


def test_inner_checks_come_first():
    inner, outer = found("x(i(j(l)))")
    assert (inner[0], size_of(inner[1]), outer[0]) == ("i", as_size("L"), "x")


@pytest.mark.parametrize("body", ["x(l) else 0", "x(i(l)) else z(l) else 1", "z(l % M)"])
def test_what_is_guarded_or_proven_is_not(body):
    assert not has_checks(group(body).statements[0].body)


def test_what_no_proof_reaches_is_checked():
    ((tensor, check),) = found("x(l - l // 2)")
    assert tensor == "x" and index_tensor(check) == ""


@pytest.mark.parametrize("dtype", [int32, int64])
def test_negative_indices_may_count_from_the_end(dtype):
    place = "cast<int64>(i(l))"
    ((_, check),) = found(f"x({place} < 0 ? {place} + N : {place})", dtype)
    assert index_from_end(check) is not None and index_tensor(check) == "i"
    ((_, check),) = found(f"x({place} < 0 ? {place} + M : {place})", dtype)
    assert index_from_end(check) is None and index_tensor(check) == ""


def test_checks_get_numbers_without_losing_anything():
    body = group("x(i(j(l)))").statements[0].body
    given = iter((7, 8))
    changed = renumber_checks(body, lambda check: next(given))
    assert [number_of(check) for _, check in checks(changed)] == [7, 8]
    assert renumber_checks(changed, lambda check: 0) == body


def test_conditions_of_use():
    made = group("i(l) < N && x(i(l)) > 0 ? x(j(l)) : z(j(l)) else x(i(l))")
    types = {tensor.name: tensor.type for tensor in made.inputs}
    assert [check.always for check in active_checks(made.statements[0].body, types)] == [False] * 3
    made = group("x(i(l)) > 0 ? z(l % M) : 1")
    assert [check.always for check in active_checks(made.statements[0].body, types)] == [True]


@pytest.mark.parametrize("body", ["x(i(j(l)))", "i(l) < N ? x(i(l)) : z(j(l)) else x(j(l))"])
def test_groups_with_checks_parse_back(body):
    made = group(body)
    assert parse_group(print_group(made)) == made


def test_a_definition_cannot_write_one():
    with pytest.raises(LanguageError, match="there is no tensor or function 'inside'"):
        group("x(inside(i(l), N, 0))")


def test_an_index_is_an_integer():
    with pytest.raises(LanguageError, match="an index must be an integer, not bool"):
        group("x(i(l) > 0)")
    with pytest.raises(LanguageError, match="an index must be an integer, not float32"):
        group("x(z(i(l)))")
