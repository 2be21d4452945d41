"""Precisions of single nodes, by patterns of their names.

    {"/head/*": "exact", "Conv": "int8", "*": "bfloat16"}     the first pattern that matches decides
    /head/*=exact, Conv=int8, bfloat16                        the same as text

A pattern matches the name of a node, the names of its results, or its operator, as in placements.
`*` is the precision of the model: of all other nodes, and of its divisions. None: exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.frozen import FrozenMapping
from anydim.base.text import quote_list
from anydim.base.user_values import short_repr
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.device_placement.rules import (
    Rule,
    add_pattern,
    all_nodes,
    check_rules_match,
)
from anydim.compiler.passes.options import (
    BFLOAT16_PARTS,
    EXACT,
    INT8,
    KernelOptions,
    known_precision,
)

ALL = "*"
_OF_NODES = (EXACT, *BFLOAT16_PARTS, INT8)  # of products; others concern divisions and devices


def precision_rules(given: Any) -> tuple[str, tuple[Rule, ...]]:
    """The precision of a model, and rules of nodes; raises OptionError for invalid values."""
    if isinstance(given, str) and "=" in given:
        given = _pairs(given)
    if not isinstance(given, Mapping):
        return known_precision(given), ()
    rules = []
    for pattern, word in given.items():
        if not isinstance(pattern, str) or not pattern:
            hint = 'give {"pattern of nodes": "precision"}'
            raise OptionError(f"precision of {short_repr(pattern)}: the pattern is no name", hint)
        if pattern != ALL and (not isinstance(word, str) or word not in _OF_NODES):
            raise OptionError(
                f"precision of '{pattern}' is {short_repr(word)}, expected {quote_list(_OF_NODES)}"
            )
        rules.append(Rule(pattern, word))
    return known_precision(given.get(ALL, EXACT)), tuple(r for r in rules if r.pattern != ALL)


def _pairs(text: str) -> dict[str, str]:
    """The mapping of a text; a word without a pattern is that of the model."""
    found: dict[str, str] = {}
    for part in text.split(","):
        pattern, equals, word = map(str.strip, part.rpartition("="))
        add_pattern(found, pattern if equals else ALL, word, "precision")
    return found


def with_precisions(options: KernelOptions, given: Any, graph: Graph) -> KernelOptions:
    """The options with the precisions of a model, and of nodes that a rule matches.

    Raises OptionError for invalid values, and for a pattern that matches no node.
    """
    whole, rules = precision_rules(given)
    check_rules_match(rules, graph, "precision")
    found = {}
    for node in all_nodes(graph):
        rule = next((rule for rule in rules if rule.fits(node)), None)
        if rule is not None:
            found[node.source] = rule.device
    return replace(options, precision=whole, nodes=FrozenMapping(found))
