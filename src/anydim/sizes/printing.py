"""The canonical text of a size expression; `parse` reads it back to an equal size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anydim.sizes.expression import Size
    from anydim.sizes.normal_form import Form


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


def _term_text(coefficient: int, powers: Iterable[tuple[str, int]], bare: bool) -> str:
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
    """The canonical text of a quotient, remainder, minimum or maximum."""
    if function in ("min", "max"):
        return f"{function}({', '.join(map(str, arguments))})"
    left, right = (_operand_text(argument) for argument in arguments)
    return f"{left}//{right}" if function == "floordiv" else f"{left} % {right}"


def _operand_text(size: Size) -> str:
    atom, constant = size.atom, size.constant
    if constant is not None and constant >= 0:
        return str(constant)
    if atom is not None and getattr(atom, "function", None) not in ("floordiv", "mod"):
        return str(atom)
    return f"({size})"
