"""The plan of a recursion for the routine that numbers its calls (`kernels/routines/levels.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anydim.base.frozen import FrozenMapping
from anydim.compiler.frontends.structures.records import Case, Decision, Instance, Place
from anydim.compiler.frontends.structures.recursion import Recursion
from anydim.compiler.graph.nodes import Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import Sizes
from anydim.compiler.kernels.routines.level_plan import Layout, bounds_of
from anydim.lang.tree import TensorType
from anydim.sizes import Dim, Size


class Plan:
    """The plan of the routine that numbers calls."""

    def __init__(self, recursion: Recursion) -> None:
        self.recursion = recursion
        self.inputs: list[str] = []
        self.types: dict[tuple[int, str], int] = {}
        self.counts: list[Size] = []
        self.firsts: list[list[int]] = []

    def build(self) -> tuple[dict[str, Any], list[str], list[Size]]:
        recursion = self.recursion
        for number, port in enumerate(recursion.ports.values()):
            for kind in port.types:
                counts = recursion.counts_of(number, kind.name)
                self.types[number, kind.name] = len(self.firsts)
                self.firsts.append([len(self.counts), len(counts)])
                self.counts += counts.values()
        cycle = {n: position for position, own in enumerate(recursion.cycles) for n in own}
        definitions = [
            {
                "types": [self.types[pair] for pair in zip(each.held, each.kinds)],
                "cycle": cycle[number],
                "decision": self.decision(each, each.decision),
            }
            for number, each in enumerate(recursion.instances)
        ]
        cases = [self.case(case, cycle) for case in recursion.cases]
        plan = {
            "types": self.firsts, "definitions": definitions, "cases": cases,
            "cycles": [
                {"first": self.first(own, cycle), "passed": self.has_passed_values(own)}
                for own in range(len(recursion.cycles))
            ],
        }  # fmt: skip
        roots = [port.roots for port in recursion.ports.values()]
        plan["roots"] = [len(self.inputs) + number for number in range(len(roots))]
        return plan, [*self.inputs, *roots], self.counts

    def decision(self, instance: Instance, decision: Decision | int) -> Any:
        if isinstance(decision, int):
            return self.recursion.cases.index(instance.cases[decision])
        return {
            "path": self.path(instance, decision.place),
            "type": self.types[instance.held[decision.place.parameter], decision.place.type],
            "cases": [self.decision(instance, each) for each in decision.branches],
        }  # fmt: skip

    def owner(self, source: int, of: tuple[str, str]) -> list[int]:
        """A constructor: the number of its type, and its position there."""
        kinds = {kind.name: kind for kind in list(self.recursion.ports.values())[source].types}
        names = [each.name for each in kinds[of[0]].constructors]
        return [self.types[source, of[0]], names.index(of[1])]

    def path(self, instance: Instance, place: Place) -> list[Any]:
        source = instance.held[place.parameter]
        steps = [
            [self.input(source, step.of, step.field), self.owner(source, step.of)]
            for step in place.steps
        ]
        return [place.parameter, *steps]

    def input(self, source: int, of: tuple[str, str], name: str, offsets: bool = False) -> int:
        value = self.recursion.fields[source, of[0], of[1], name]
        if offsets:
            value = f"{value}.offsets"
        if value not in self.inputs:
            self.inputs.append(value)
        return self.inputs.index(value)

    def case(self, case: Case, cycle: Mapping[int, int]) -> dict[str, Any]:
        instances = self.recursion.instances
        own = cycle[instances.index(case.instance)]
        calls, loop = [], False
        for call in case.calls:
            number = instances.index(self.recursion.by_key[call.callee])
            loop = loop or cycle[number] == own
            offsets = None
            if call.several:
                step = call.places[0].steps[-1]
                source = case.instance.held[call.places[0].parameter]
                offsets = self.input(source, step.of, step.field, True)
            paths = [self.path(case.instance, place) for place in call.places]
            calls.append({"definition": number, "paths": paths, "offsets": offsets})
        constructor = -1
        if case.constructor:
            of = (case.instance.kinds[0], case.constructor)
            constructor = self.owner(case.instance.held[0], of)[1]
        fields = [
            [
                self.path(case.instance, each.owner),
                self.owner(
                    case.instance.held[each.owner.parameter], (each.owner.type, each.constructor)
                ),
            ]
            for each in case.fields.values()
        ]
        nodes = [self.path(case.instance, place) for place in case.nodes.values()]
        return {
            "definition": instances.index(case.instance), "constructor": constructor,
            "calls": calls, "fields": fields, "nodes": nodes, "loop": loop,
        }  # fmt: skip

    def has_passed_values(self, cycle: int) -> bool:
        """Whether calls of a cycle take arguments that differ between calls."""
        recursion = self.recursion
        return any(recursion.instances[number].passed for number in recursion.cycles[cycle])

    def first(self, own: int, cycle: Mapping[int, int]) -> int:
        """The lowest level of a case that calls its cycle: 0 if it may have no calls."""
        for case in self.recursion.cases:
            instances = self.recursion.instances
            if cycle[instances.index(case.instance)] != own:
                continue
            inner = [
                call for call in case.calls
                if cycle[instances.index(self.recursion.by_key[call.callee])] == own
            ]  # fmt: skip
            if inner and all(call.several for call in inner):
                return 0
        return 1


def number_calls(recursion: Recursion) -> None:
    """Number all calls, and find the sizes of levels."""
    plan, inputs, counts = Plan(recursion).build()
    recursion.layout = Layout(plan)
    emitter, layout = recursion.emitter, recursion.layout
    attributes = {"plan": json.dumps(plan), "counts": tuple(counts)}
    given = [emitter.types[name] for name in inputs]
    kinds = operator("call_levels").infer(given, FrozenMapping(attributes), emitter.box)
    recursion.bounds = bounds_of(given, attributes)
    names = []
    for result in layout.results():
        names.append(emitter.fresh(".".join(["levels", *map(str, result)])))
        recursion.results_of_levels[result] = names[-1]
    frozen = FrozenMapping(attributes)
    emitter.node(Node("call_levels", tuple(inputs), tuple(names), frozen, emitter.source), kinds)
    _sizes(recursion, dict(zip(layout.results(), kinds)))


_TABLES = {"levels": "table", "edges": "owner", "depths": "down"}
"""Counts of rows -> the result of `call_levels` with at least that number of rows."""


def _sizes(recursion: Recursion, kinds: Mapping[tuple[Any, ...], TensorType]) -> None:
    """Declare the sizes of levels as dims."""
    emitter, layout, name = recursion.emitter, recursion.layout, recursion.definition.name
    dims, constraints = [], []
    for size in layout.sizes():
        word, *parts = size
        stem = name
        if word in ("calls", "edges", "widest", "broadest"):
            stem = recursion.cases[parts[0]].name
        words = {"calls": (), "edges": ("children",), "widest": ("widest",)}.get(word, (word,))
        if word == "widest" and len(parts) == 2:
            words = ("children", "widest")
        if word == "levels" and len(layout.loops) > 1:
            words = (str(parts[0]), "levels")
        if len(parts) == 2 and len(layout.spread(parts[0])) > 1:
            words = (str(parts[1]), *words)
        dim = recursion.free(".".join([stem, *words]))
        recursion.dims[size] = dim
        dims.append(Dim(dim, 0, 0) if word == "fault" else Dim(dim))
        symbol = Size.symbol(dim)
        if word in _TABLES:
            constraints.append(kinds[(_TABLES[word], *parts)].shape[0] - symbol)
        elif word in ("calls", "broadest"):
            constraints.append(recursion.bounds.case(parts[0]) - symbol)
        elif word == "widest":
            whole = ("calls", *parts) if len(parts) == 1 else ("edges", *parts)
            constraints.append(Size.symbol(recursion.dims[whole]) - symbol)
    emitter.box = emitter.box.also(*dims).also(constraints=tuple(constraints))
    region = Sizes(tuple(recursion.dims.values()))
    emitter.region(region, (recursion.results_of_levels["sizes",],))
