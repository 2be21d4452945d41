"""Sizes print canonically and read back; bad text is pointed at."""

import pytest
from hypothesis import given

from anydim.base.errors import OptionError
from anydim.sizes import Size, as_size, parse
from tests.unit.sizes.strategies import checked, sizes


@checked
@given(sizes(10))
def test_parse_reads_what_print_wrote(x: Size) -> None:
    again = parse(str(x))
    assert again == x
    assert str(again) == str(x)
    assert hash(again) == hash(x)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("seq*batch*4 + 384", "4*batch*seq + 384"),
        ("(h+1)//2", "(h + 1)//2"),
        ("(h + 2 - 3)//2 + 1", "(h + 1)//2"),
        ("min(8,n)", "min(n, 8)"),
        ("n%4", "n % 4"),
        ("512-seq", "512 - seq"),
        ("-n", "-n"),
        ("-(n//2)", "-(n//2)"),
        ("-n//2", "-((n + 1)//2)"),
        ("-(-n//8)", "(n + 7)//8"),
        ("3*n//2", "n + n//2"),
        ("3*n//4", "(3*n)//4"),
        ("-n//b", "(-n)//b"),
        ("4*n//2", "2*n"),
        ("n*n - -1", "n**2 + 1"),
        ("((h+1)//2+1)//2", "(h + 3)//4"),
        ("a // b // c", "(a//b)//c"),
        ("a // (b // c)", "a//(b//c)"),
        ("7 - 7", "0"),
        ("2**3*x", "8*x"),
        ("-n**2", "-n**2"),
        ("(n%3)*max(n//2, 1)", "max(n//2, 1)*(n % 3)"),
        (" A.0 +\n T.1", "A.0 + T.1"),
        ("min + max", "max + min"),
        ("größe*2", "2*größe"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical
    assert str(parse(canonical)) == canonical


@pytest.mark.parametrize(
    ("text", "problem", "caret_column"),
    [
        ("a + * b", "expected a number, a name or '(', found '*'", 4),
        ("", "found the end", 0),
        ("a +", "found the end", 3),
        ("(a", "expected ')', found the end", 2),
        ("a b", "expected an operator or the end, found 'b'", 2),
        ("3x", "found 'x'", 1),
        ("a / 2", "found '/'", 2),
        ("min(a,)", "found ')'", 6),
        ("a**b", "expected an exponent", 3),
        ("a**99", "expected an exponent", 3),
        ("a // 0", "divided by 0", 2),
        ("a.append(1)", "found '('", 8),
        ("a; b", "found ';'", 1),
    ],
)
def test_bad_text_is_pointed_at(text: str, problem: str, caret_column: int) -> None:
    with pytest.raises(OptionError) as caught:
        parse(text)
    assert problem in str(caught.value)
    lines = str(caught.value).splitlines()
    shown = next(i for i, line in enumerate(lines) if line.strip() == "^")
    assert lines[shown].index("^") == caret_column + 2
    assert lines[shown - 1] == "  " + text


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "a" + ")" * 5000,
        "a+" * 40_000 + "a",
        "9" * 1000,
        "(a+b+c+d)**16*(a+b+c+d)**16*(e+f+g+h)**16",
        "((((a**16)**16)**16)**16)",
        "(((9**16)**16)**16)**16",
        "-" * 70_001 + "a",
    ],
)
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse(text)


def test_as_size_reads_all_kinds() -> None:
    assert as_size("n + 1") == as_size("1 + n")
    assert as_size(3) == parse("3")
    assert as_size(as_size("n")) == Size.symbol("n")
    with pytest.raises(TypeError):
        as_size(1.5)  # type: ignore[arg-type]


def test_what_a_large_program_has_reads_back() -> None:
    """Dims of files have long names: a detector's sizes had 21,549 characters."""
    image = as_size("DynamicDimension.1") + as_size("DynamicDimension.2")
    size = as_size(0)
    for number in range(400):
        size = size + (image + number) // 401 * image
    assert 20_000 < len(str(size)) < 65_536
    assert parse(str(size)) == size


def test_an_extreme_of_too_many_arguments_is_refused() -> None:
    with pytest.raises(OptionError, match="at most 2000 arguments"):
        parse(f"max({','.join('1' * 2500)})")
