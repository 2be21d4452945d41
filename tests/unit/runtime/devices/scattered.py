"""Graphs whose nodes are put on devices at random, those of held graphs too."""

from __future__ import annotations

import random
from dataclasses import fields, replace

from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.regions import REGION


def scattered(graph: Graph, chance: random.Random, devices: tuple[str, ...]) -> Graph:
    """The graph with each node on one of the devices; neighbours often on the same."""
    nodes: list[Node] = []
    for node in graph.nodes:
        before = nodes[-1].device if nodes and nodes[-1].region is None else ""
        device = before if chance.random() < 0.3 else chance.choice(devices)
        if node.region is None:
            nodes.append(replace(node, device=device))
            continue
        held = {
            each.name: scattered(getattr(node.region, each.name), chance, devices)
            for each in fields(node.region)
            if isinstance(getattr(node.region, each.name), Graph)
        }
        region = replace(node.region, **held)
        nodes.append(replace(node, attributes=FrozenMapping({**node.attributes, REGION: region})))
    return graph.replace(nodes=tuple(nodes))
