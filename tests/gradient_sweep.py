"""The derivative of every definition of the repository, or why it has none.

    python -m tests.gradient_sweep               # all of them: some minutes
    python -m tests.gradient_sweep --write       # and tests/not_differentiable.txt

A derivative is compared with differences, in float64, at sizes 0, 1 and primes
(tests/gradients.py). The file names those of pages, benchmarks, libraries and corpora that have
none, by reason; definitions in Python files of tests have no names of their own.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from anydim.api.derivatives import derive_vjp
from anydim.base.errors import LanguageError, UserError
from anydim.lang.surface.sequences import is_sequence
from anydim.lang.surface.syntax import Definition
from tests.definition_texts import arguments, definitions
from tests.gradients import TOLERANCE, check, values

LIST = Path(__file__).with_name("not_differentiable.txt")
SIZES = (0, 1, 2, 5)
DRAWS = 6  # arguments of one size: some have no call, or are beside a kink
TORCH = "src/anydim/compiler/frontends/torch/definitions.tc"
NO_CALL = "no call with floats is valid"
ROUNDING = {
    f"{TORCH}: greatest_divisor": "remainders of remainders",
    f"{TORCH}: jacobi": "rotations by rounding",
    "tests/unit/compiler/checking/test_check.py: f": "a difference of large equal numbers",
}
"""Definitions whose differences are rounding."""


def reason(name: str, definition: Definition, sizes: Iterable[int] = SIZES) -> str:
    """Why a definition has no derivative; '' if it has one. AssertionError: it is wrong."""
    if name in ROUNDING:
        return f"differences of values are rounding: {ROUNDING[name]}"
    if definition.types or definition.family or is_sequence(definition):
        return _refusal(definition, 1, 0)
    called = False
    for n in sizes:
        errors = []
        for seed in range(DRAWS):
            arrays, attributes = arguments(definition, n, seed)
            try:
                values(definition, arrays, attributes)
            except (UserError, LookupError):
                continue
            if refusal := _refusal(definition, n, seed):
                return refusal
            try:
                errors.append(check(definition, arrays, attributes, seed))
            except LanguageError as error:
                return f"its derivative is refused: {_without_names(error)}"
            if errors[-1] < TOLERANCE:
                break
        assert not errors or errors[-1] < TOLERANCE, (name, n, errors)
        called = called or bool(errors)
    return "" if called else NO_CALL


def _refusal(definition: Definition, n: int, seed: int) -> str:
    """The compiler's reason against a derivative, without the names of a definition."""
    arrays, attributes = arguments(definition, n, seed)
    try:
        derive_vjp(definition, arrays, attributes, {})
    except UserError as error:
        found = re.search(r"no derivative: (.*?)(?:: |\n|$)|(a definition with .*)", str(error))
        assert found, error
        return found[1] or found[2]
    return ""


def _without_names(error: LanguageError) -> str:
    """The kind of an error: its message up to what it is about."""
    return re.sub(r"'\w+'", "a tensor", str(error).split(": ", 2)[2].split(":")[0])


def is_named(name: str) -> bool:
    """Whether the list names a definition."""
    place = name.partition(": ")[0]
    return not place.startswith("tests/") or place.endswith(".tc")


def listed(reasons: Mapping[str, str]) -> str:
    """The names of definitions without a derivative, by reason and file."""
    groups: dict[str, dict[str, list[str]]] = {}
    for name, why in reasons.items():
        if why and is_named(name):
            place, _, own = name.partition(": ")
            groups.setdefault(why, {}).setdefault(place, []).append(own)
    blocks = [f"{why}\n{_lines(places)}" for why, places in sorted(groups.items())]
    return "\n".join(blocks)


def _lines(places: Mapping[str, Iterable[str]]) -> str:
    texts = (f"{place}: {', '.join(names)}" for place, names in sorted(places.items()))
    return "".join(
        textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="    ") + "\n"
        for text in texts
    )


@click.command(help=__doc__)
@click.option("--write", is_flag=True)
def main(write: bool) -> None:
    reasons = {}
    for name, definition in definitions().items():
        reasons[name] = reason(name, definition)
        print(f"{name}: {reasons[name] or 'differentiable'}", flush=True)
    if write:
        LIST.write_text(listed(reasons), "utf-8")
    refused = sum(map(bool, reasons.values()))
    print(f"{len(reasons)} definitions, {len(reasons) - refused} with a derivative")


if __name__ == "__main__":
    main()
