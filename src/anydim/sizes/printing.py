"""The canonical text of a size expression; `parse` reads it back to an equal size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anydim.sizes.atoms import Factor
    from anydim.sizes.expression import Size
    from anydim.sizes.normal_form import Form

LONGEST_TEXT = 1 << 16  # maximum number of characters of an atom's text, and of one to be read


def size_text(size: Form) -> str:
    """Format a size, e.g. "4*batch*seq + 384", "(h + 1)//2", "512 - seq"."""
    terms = [(coefficient, powers) for coefficient, powers in size.terms()]
    if not terms:
        return "0"
    if terms[0][0] < 0:  # "512 - seq" reads better than "-seq + 512"
        first = next((i for i, (coefficient, _) in enumerate(terms) if coefficient > 0), 0)
        terms.insert(0, terms.pop(first))
    text = ""
    for coefficient, powers in terms:
        sign = "-" if coefficient < 0 else "+"
        if text:
            text += f" {sign} {_term_text(abs(coefficient), powers, bare=True)}"
        else:
            lead = "-" if coefficient < 0 else ""
            text = lead + _term_text(abs(coefficient), powers, bare=not lead)
    return text


def _term_text(coefficient: int, powers: Iterable[tuple[Factor, int]], bare: bool) -> str:
    """One term without its sign; `bare` allows a lone quotient without parentheses."""
    factors = list(powers)
    if bare and coefficient == 1 and len(factors) == 1 and factors[0][1] == 1:
        return str(factors[0][0])
    parts = [str(coefficient)] if coefficient != 1 or not factors else []
    for atom, power in factors:
        loose = getattr(atom, "function", None) in ("floordiv", "mod")
        base = f"({atom})" if loose else str(atom)
        parts.append(base if power == 1 else f"{base}**{power}")
    return "*".join(parts)


def atom_text(function: str, arguments: tuple[Size, ...]) -> str:
    """The canonical text of a quotient, remainder, minimum, maximum or choice."""
    if function in ("min", "max"):
        return f"{function}({', '.join(map(str, arguments))})"
    if function == "where":
        test, then, otherwise = arguments
        return f"({then} if {condition_text(test)} else {otherwise})"
    left, right = (_operand_text(argument) for argument in arguments)
    return f"{left}//{right}" if function == "floordiv" else f"{left} % {right}"


def _operand_text(size: Size) -> str:
    atom, constant = size.atom, size.constant
    if constant is not None and constant >= 0:
        return str(constant)
    if atom is not None and getattr(atom, "function", None) not in ("floordiv", "mod"):
        return str(atom)
    return f"({size})"


def condition_text(test: Form) -> str:
    """The text of the condition test >= 0, e.g. "9 <= m <= 13", "k >= 256 and n >= 64".

    A minimum is >= 0 where all its operands are, a maximum where one of them is.
    """
    function = getattr(test.atom, "function", None)
    if function == "max":
        return " or ".join(map(condition_text, test.atom.arguments))  # type: ignore[union-attr]
    if function == "min":
        return " and ".join(_all_texts(test.atom.arguments))  # type: ignore[union-attr]
    return " ".join(_sides(test))


def _all_texts(tests: Iterable[Form]) -> Iterator[str]:
    """The texts of conditions that hold together; a lower and an upper bound make a range."""
    bounds: dict[str, list[tuple[str, str]]] = {}
    for test in tests:
        if getattr(test.atom, "function", None) == "max":
            bounds[f"({condition_text(test)})"] = []
        else:
            left, relation, right = _sides(test)
            bounds.setdefault(left, []).append((relation, right))
    for size, found in bounds.items():
        ends = dict(found)
        if len(found) == 2 and ends.keys() == {">=", "<="}:
            low, high = ends[">="], ends["<="]
            yield f"{size} == {low}" if low == high else f"{low} <= {size} <= {high}"
        elif found:
            yield from (f"{size} {relation} {right}" for relation, right in found)
        else:
            yield size


def _sides(test: Form) -> tuple[str, str, str]:
    """Left side, relation and right side of test >= 0; a constant alone is on the right."""
    constant = test.coefficients.get((), 0)
    more = {monomial: c for monomial, c in test.coefficients.items() if c > 0 and monomial}
    less = {monomial: -c for monomial, c in test.coefficients.items() if c < 0 and monomial}
    if not less:
        return size_text(type(test)(more)), ">=", str(-constant)
    if not more:
        return size_text(type(test)(less)), "<=", str(constant)
    if constant and constant != -1:
        (more if constant > 0 else less)[()] = abs(constant)
    relation = "<" if constant == -1 else "<="
    return size_text(type(test)(less)), relation, size_text(type(test)(more))
