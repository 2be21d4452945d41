"""Options of schedules: valid values, values that a search tries, and overrides in text form.

A text may name only a few options, `contraction(rows=6)`; the others keep the proposed value. Every
option that users may set has a row in `RULES` with its valid values; an option without a row is
private to its template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.text import quote_list
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.schedule import parse_options, print_schedule, schedule_name
from anydim.compiler.kernels.template import Template
from anydim.lang.tree import Group
from anydim.sizes import Box

Rule = tuple[Callable[[Any, Any], bool], str]  # (value, proposed schedule) -> valid; in words


def _whole(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _between(low: int, high: int) -> Rule:
    return lambda value, _: _whole(value, low, high), f"a whole number from {low} to {high}"


def _power(high: int, low: int = 1) -> Rule:
    def valid(value: Any, _: Any) -> bool:
        return _whole(value, low, high) and value & (value - 1) == 0

    return valid, f"a power of two from {low} to {high}"


def _multiple(of: int, low: int, high: int) -> Rule:
    def right(value: Any, _: Any) -> bool:
        return _whole(value, low, high) and value % of == 0

    return right, f"a multiple of {of} from {low} to {high}"


_FLAG: Rule = (lambda value, _: isinstance(value, bool), "true or false")
_WORD: Rule = (lambda value, _: isinstance(value, str), "the name of an axis or a loop, or none")
_VERSION: Rule = (lambda value, _: isinstance(value, str), "the name of a version, or any")
_MEGABYTES = _between(1, 1 << 30)
_TILE: dict[str, Rule] = {
    "rows": _between(1, 16), "vectors": _between(1, 6), "lanes": _power(32, 2), "unroll": _power(8),
}  # fmt: skip

RULES: dict[str, dict[str, Rule]] = {
    "pointwise": {"lanes": _power(64), "unroll": _power(16), "version": _VERSION},
    "concat": {"lanes": _power(64), "unroll": _power(16), "version": _VERSION},
    "rows": {
        "lanes": _power(64), "unroll": _power(16), "across": _FLAG, "version": _VERSION,
    },
    "row_phase": {},
    "loop_nest": {
        "lanes": _power(64), "unroll": _power(16), "parallel": _WORD, "block": _between(0, 1 << 30),
    },
    "contraction": {
        **_TILE, "block_k": _multiple(8, 8, 1 << 20),
        "block_rows_bytes": _MEGABYTES, "block_columns_bytes": _MEGABYTES, "version": _VERSION,
    },
    "convolution": {
        **_TILE, "chunk_k": _multiple(8, 8, 1 << 20), "block_tiles": _between(1, 1 << 10),
        "block_panels": _between(1, 1 << 10), "direct": _FLAG, "version": _VERSION,
    },
    "winograd": {**_TILE, "block_tiles": _between(1, 1 << 10), "version": _VERSION},
    "winograd_across": {**_TILE, "block": _between(1, 1 << 10), "version": _VERSION},
    "int8": {**_TILE, "version": _VERSION},
    "weight_only_quant": {},
    "window_reduction": {"lanes": _power(64, 2), "vectors": _between(1, 8), "version": _VERSION},
    "transpose": {"lanes": _power(64), "version": _VERSION},
    "attention": {
        "query_block": (
            lambda value, at: _whole(value, at.rows, 1 << 20) and value % at.rows == 0,
            "a multiple of the rows of a tile",
        ),
        "key_block": (
            lambda value, at: _whole(value, at.lanes, 4096) and value % at.lanes == 0,
            "a multiple of the lanes up to 4096",
        ),
        "copies": _FLAG, "version": _VERSION,
    },
}  # fmt: skip

# values that a search tries; the other options follow from the machine, or hardly matter
SEARCHED: dict[str, dict[str, tuple[int, ...]]] = {
    "pointwise": {"lanes": (4, 8, 16), "unroll": (1, 2, 4, 8)},
    "concat": {"lanes": (4, 8, 16), "unroll": (1, 2, 4, 8)},
    "rows": {"lanes": (4, 8, 16), "unroll": (1, 2, 4, 8)},
    "loop_nest": {"lanes": (4, 8, 16), "unroll": (1, 2, 4)},
    "window_reduction": {"lanes": (4, 8, 16), "vectors": (1, 2, 3, 4)},
    "transpose": {"lanes": (4, 8, 16)},
    "contraction": {"rows": (2, 3, 4, 6, 8, 10, 12), "unroll": (1, 2, 4)},
    "convolution": {"rows": (2, 4, 6, 8, 10, 12), "unroll": (1, 2, 4), "block_tiles": (4, 16, 64)},
    "winograd": {"rows": (4, 6, 8, 10, 12), "block_tiles": (8, 16, 32, 64)},
    "int8": {"rows": (2, 4, 6, 8)},
}

VERSION = "version"  # the option of schedules whose kernels have versions

# kinds whose versions all have the same bits at all sizes: a schedule for all sizes may force one
SAME_BITS = frozenset({"pointwise", "concat", "transpose", "int8"})

# for a schedule that serves all sizes: partition of work for threads and caches only, nothing that
# would change the summation order at a size that is not measured
TRIED_WHOLE: dict[str, dict[str, tuple[int, ...]]] = {
    "pointwise": SEARCHED["pointwise"],
    "window_reduction": SEARCHED["window_reduction"],
    "transpose": SEARCHED["transpose"],
    "contraction": {
        "block_columns_bytes": tuple(n << 15 for n in (1, 2, 3, 4, 6, 8, 16)),
        "block_rows_bytes": tuple(3 << n for n in (15, 16, 17, 18, 19)),
    },
    "convolution": {
        "block_panels": (1, 2, 3, 4, 6, 8),
        "block_tiles": (4, 8, 12, 16, 24, 32, 64),
        "direct": (False, True),
    },
    "winograd": {"block_tiles": (2, 3, 4, 6, 8, 12, 16, 32)},
    "attention": {"query_block": (24, 48, 96, 192, 384), "copies": (False, True)},
    "int8": {"rows": (2, 4, 6, 8), "vectors": (1, 2, 3, 4)},
}


def schedule_from_text(
    text: str, templates: Sequence[Template], group: Group, box: Box, machine: Machine,
    constants: frozenset[str],
) -> tuple[Template, Any]:  # fmt: skip
    """The template named by a text, and its proposal for a group with the options of the text
    applied.

    Raises OptionError for a template that does not match the group, or an invalid value.
    """
    kind, options = parse_options(text)
    template = next(t for t in templates if t.schedule is kind)
    proposal = template.match(group, box, machine, constants)
    if proposal is None:
        chosen = first_match(templates, group, box, machine, constants)
        taken = "no template" if chosen is None else f"'{chosen[0].name}'"
        raise OptionError(
            f"'{template.name}' does not take this computation",
            f"{taken} does: {print_schedule(chosen[1])}" if chosen else "",
        )
    for name, value in options.items():
        _check(schedule_name(kind), name, value, proposal)
    return template, replace(proposal, **options)


def first_match(
    templates: Sequence[Template], group: Group, box: Box, machine: Machine,
    constants: frozenset[str],
) -> tuple[Template, Any] | None:  # fmt: skip
    """The first template that matches a group, with its proposal."""
    for template in templates:
        schedule = template.match(group, box, machine, constants)
        if schedule is not None:
            return template, schedule
    return None


def _check(kind: str, name: str, value: Any, proposal: Any) -> None:
    if value == getattr(proposal, name):
        return
    rules = RULES.get(kind, {})
    if name not in rules:
        known = [f.name for f in fields(proposal) if f.name in rules]
        raise OptionError(
            f"option '{name}' of '{kind}' follows from the computation and the machine",
            f"what can be chosen: {quote_list(known)}",
        )
    right, words = rules[name]
    if not right(value, proposal):
        raise OptionError(f"option '{name}' of '{kind}' is {value}, expected {words}")
