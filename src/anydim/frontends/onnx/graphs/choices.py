"""Branches of unlike ranks that a relation between sizes chooses: the one that can be, is.

`x.squeeze(-1)` of a model with free sizes is exported as an If: where the last size is 1, an axis
goes. What follows is written for one of the two, and with the other the file is not valid. So the
model is imported with either; where one fails, the relation that leads to the other becomes a guard
of the call. Where both can be imported, both stay, with what follows in either (`apart.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anydim.base.errors import ModelError
from anydim.frontends.onnx.graphs.inside import Choice
from anydim.graph.nodes import Graph

_MOST_IMPORTS = 64


def chosen(name: str, imported: Callable[[Mapping[str, bool | None]], Graph]) -> Graph:
    """The graph that `imported` makes of choices by node; ModelError where none decides."""
    return _Choosing(name, imported).run({})


class _Choosing:
    def __init__(self, name: str, imported: Callable[[Mapping[str, bool | None]], Graph]) -> None:
        self.name = name
        self.imported = imported
        self.imports = 0

    def run(self, choices: Mapping[str, bool | None]) -> Graph:
        self.imports += 1
        try:
            return self.imported(choices)
        except Choice as open_one:
            refused = ModelError(f"{self.name}, node '{open_one.label}' (If): {open_one}")
            if self.imports >= _MOST_IMPORTS:
                raise refused from None
            return self.only(choices, open_one.label)

    def only(self, choices: Mapping[str, bool | None], label: str) -> Graph:
        """The graph with the one branch of a node that makes one, or with both."""
        made: list[Graph] = []
        problems: list[ModelError] = []
        for branch in (True, False):
            try:
                made.append(self.run({**choices, label: branch}))
            except ModelError as problem:
                problems.append(problem)
        if len(made) == 1:
            return made[0]
        if made:
            return self.run({**choices, label: None})
        raise problems[0]
