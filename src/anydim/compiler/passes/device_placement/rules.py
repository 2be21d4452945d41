"""Placement rules of users: patterns of node names, and devices.

    {"backbone/*": "accel", "NonMaxSuppression": "cpu"}      the first pattern that matches decides
    backbone/*=accel, NonMaxSuppression=cpu                  the same as text

A pattern matches the name of a node, the names of its results, or its operator; operators are
compared without case and underscores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.base.user_values import short_repr
from anydim.compiler.graph.nodes import Graph, Node
from anydim.runtime.devices.device import HOSTS
from anydim.runtime.devices.table import DRIVERS

HOST = ""  # the device of nodes on the host


@dataclass(frozen=True)
class Rule:
    """A pattern of nodes, and the device (or the precision) for them."""

    pattern: str
    device: str

    def fits(self, node: Node) -> bool:
        """Whether the pattern matches a node."""
        return any(fnmatchcase(name, self.pattern) for name in names_of(node)) or fnmatchcase(
            _plain(node.operator), _plain(self.pattern)
        )

    def __str__(self) -> str:
        return f"{self.pattern}={self.device or HOSTS[0]}"


def known_rules(given: Any, devices: Collection[str]) -> tuple[Rule, ...]:
    """Parse rules from a mapping or a text; raises OptionError for other values.

    `devices` are the valid names of devices other than the host.
    """
    if given is None:
        return ()
    pairs = _pairs(given) if isinstance(given, str) else given
    if not isinstance(pairs, Mapping):
        raise OptionError(
            f"placement is {short_repr(given)}", 'give {"pattern of nodes": "device"}, or its text'
        )
    return tuple(Rule(*_check_rule(pattern, device, devices)) for pattern, device in pairs.items())


def mentions(given: Any, names: Collection[str]) -> bool:
    """Whether a mapping or a text places nodes on one of the devices `names`."""
    if isinstance(given, str):
        return any(part.rpartition("=")[2].strip() in names for part in given.split(","))
    return isinstance(given, Mapping) and any(
        isinstance(device, str) and device in names for device in given.values()
    )


def check_rules_match(rules: Iterable[Rule], graph: Graph, option: str = "placement") -> None:
    """Raise OptionError for a rule that matches no node of a graph or its nested graphs."""
    nodes = list(all_nodes(graph))
    for rule in rules:
        if not any(rule.fits(node) for node in nodes):
            known = dict.fromkeys(name for node in nodes for name in (*names_of(node),))
            hint = suggestion(rule.pattern, known) or "print the graph: anydim show --stage import"
            raise OptionError(f"{option}: no node matches '{rule.pattern}'", hint)


def all_nodes(graph: Graph) -> Iterable[Node]:
    """The nodes of a graph and of all nested graphs."""
    for node in graph.nodes:
        yield node
        for held in node.region.held.values() if node.region else ():
            yield from all_nodes(held)


def names_of(node: Node) -> tuple[str, ...]:
    """Names that a pattern can match: a node's name in the file, and its results."""
    source = node.source.partition(": ")[2] or node.source
    return tuple(dict.fromkeys((source, *node.outputs)))


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(str.strip, text.split(",")):
        pattern, equals, device = map(str.strip, part.rpartition("="))
        if not (pattern and equals and device):
            hint = "write pattern=device, such as '*=accel', or auto"
            raise OptionError(f"placement: '{part.strip()}' cannot be read", hint)
        add_pattern(found, pattern, device, "placement")
    return found


def add_pattern(found: dict[str, str], pattern: str, word: str, option: str) -> None:
    """Add a pattern of a text; raises OptionError for one that has another word before."""
    if found.setdefault(pattern, word) != word:
        raise OptionError(f"{option}: '{pattern}' has two values, {found[pattern]} and {word}",
                          "the first pattern that matches decides")  # fmt: skip


def _check_rule(pattern: Any, device: Any, devices: Collection[str]) -> tuple[str, str]:
    if not isinstance(pattern, str) or not isinstance(device, str) or not pattern:
        raise OptionError(
            f"placement: {short_repr(pattern)}: {short_repr(device)}", "give two strings"
        )
    if device in HOSTS:
        return pattern, HOST
    if device not in devices:
        names = (*devices, *HOSTS)
        hint = suggestion(device, names) or f"there is {quote_list(names)}: devices= names them"
        if device.partition(":")[0] in DRIVERS:
            hint = f"name it: devices={{'accel': '{device}'}}, placement={{'{pattern}': 'accel'}}"
        raise OptionError(f"placement: '{pattern}' is on '{device}', which is not a device", hint)
    return pattern, device


def unknown_devices(rules: Iterable[Rule], graph: Graph, devices: Collection[str]) -> list[str]:
    """Unknown devices set in the graph, on nodes that no rule matches."""
    known = tuple(rules)
    on = (node.device for node in all_nodes(graph) if not any(rule.fits(node) for rule in known))
    return [name for name in dict.fromkeys(on) if name and name not in devices]


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
