"""Promise: sizes are printed by names that are the same in every process, and hide nothing."""

from __future__ import annotations

import itertools
import random

import pytest

from anydim.sizes import Size, SizeNames, as_size, maximum, parse, parse_condition


def printed(*texts: str) -> tuple[list[str], list[str]]:
    """The definitions, and the texts by names."""
    sizes = list(map(parse, texts))
    names = SizeNames(sizes)
    return list(names.lines()), list(map(names.text, sizes))


def test_parts_that_are_printed_twice_have_a_name() -> None:
    lines, texts = printed("64*((height + 1)//2)*w", "((height + 1)//2)*w + 7", "(height + 1)//2")
    assert lines == ["s1 = (height + 1)//2"]
    assert texts == ["64*s1*w", "s1*w + 7", "s1"]


def test_short_and_single_sizes_have_none() -> None:
    assert printed("4*a*b", "4*a*b", "(h + 1)//2", "((h + 1)//2)*rows*columns") == (
        [],
        ["4*a*b", "4*a*b", "(h + 1)//2", "((h + 1)//2)*columns*rows"],
    )


def test_names_are_built_from_names() -> None:
    lines, texts = printed("max(rows*columns + 5, 100) + rows*columns + 5", "(rows*columns + 5)//7")
    assert lines == ["s1 = columns*rows + 5"]
    assert texts == ["columns*rows + max(s1, 100) + 5", "s1//7"]
    whole, half = "max((height + 1)//2, 1000)", "(height + 1)//2"
    lines, texts = printed(whole, f"5*{whole}", "height//2", f"7*({half})")
    assert lines == ["s1 = (height + 1)//2", "s2 = max(s1, 1000)"]
    assert texts == ["s2", "5*s2", "height//2", "7*s1"]


def test_relations_are_printed_as_relations() -> None:
    when = parse_condition("9 <= batch*sequence <= 13 and batch >= 2")
    size = when.where(as_size(4), Size.symbol("batch") * Size.symbol("sequence"))
    names = SizeNames([when, size])
    assert list(names.lines()) == ["s1 = batch*sequence"]
    assert names.text(when) == "9 <= s1 <= 13 and batch >= 2"
    assert names.text(size) == "(4 if 9 <= s1 <= 13 and batch >= 2 else s1)"


def test_no_name_is_that_of_a_dim() -> None:
    lines, texts = printed("max(s1 + 1000000, width)", "4*max(s1 + 1000000, width)")
    assert (lines, texts) == (["z1 = max(s1 + 1000000, width)"], ["z1", "4*z1"])


def test_deep_sizes_are_printed_without_recursion() -> None:
    size = Size.symbol("n")
    for number in range(300):
        size = maximum(size // 3 + number, 7)
    names = SizeNames([size, size + 1])
    assert names.text(size + 1).endswith(" + 1")


@pytest.mark.parametrize("seed", range(5))
def test_definitions_put_back_give_the_sizes(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [Size.symbol(name) for name in ("batch", "height", "width")]
    for _ in range(40):
        a, b = rng.choices(sizes, k=2)
        sizes.append(rng.choice([a + b, a * 3 + 1, a * b, (a + 7) // 8, maximum(a, b), a % 9]))
        sizes = [size for size in sizes if len(str(size)) < 300]
    names = SizeNames(sizes)
    defined: dict[str, Size] = {}
    for line in names.lines():
        name, text = line.split(" = ", 1)
        defined[name] = parse(text).substitute(defined)  # only names before it
    for size, env in itertools.product(sizes, ({"batch": 3, "height": 17, "width": 40},)):
        assert parse(names.text(size)).substitute(defined).evaluate(env) == size.evaluate(env)
