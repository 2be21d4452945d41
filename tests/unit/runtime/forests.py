"""Structure inputs of three types, random values of them, and programs that take them."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy

from anydim.base.dtypes import float32, int64
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.graph.nodes import Graph
from anydim.runtime.lists import ConstructorPort, FieldPort, StructurePort, TypePort
from anydim.sizes import as_size

WIDTH = 3


def port(type: str, **constructors: tuple[FieldPort, ...]) -> StructurePort:
    made = tuple(ConstructorPort(name, fields) for name, fields in constructors.items())
    return StructurePort(type, (TypePort(type, made),), "t")


X = FieldPort("x", "t.x", shape=(as_size("D"),))
TREE = port(
    "Tree", leaf=(X,),
    node=(FieldPort("left", "t.left", "Tree"), FieldPort("right", "t.right", "Tree")),
)  # fmt: skip
LIST = port("List", nil=(), cons=(FieldPort("head", "t.head"), FieldPort("tail", "t.tail", "List")))
BUSH = port("Bush", bush=(X, FieldPort("children", "t.children", "Bush", (), "t.offsets")))
ROSE = port(
    "Rose", leaf=(FieldPort("x", "t.x"),),
    branch=(FieldPort("inner", "t.inner", "Rose", (), "t.offsets"),),
)  # fmt: skip
PARITY = StructurePort(  # two types that refer to each other, with a constructor of one name
    "Even",
    (
        TypePort("Even", (ConstructorPort("end", ()),
                          ConstructorPort("more", (FieldPort("rest", "t.odd", "Odd"),)))),
        TypePort("Odd", (ConstructorPort("more", (FieldPort("x", "t.x"),
                                                  FieldPort("rest", "t.even", "Even"))),)),
    ),
    "t",
)  # fmt: skip


def drawn(random: Random) -> numpy.ndarray:
    return numpy.array([random.random() for _ in range(WIDTH)], numpy.float32)


def tree(random: Random, depth: int = 6) -> Any:
    if depth == 0 or random.random() < 0.3:
        return ("leaf", drawn(random))
    left = tree(random, depth - 1)
    return ("node", left, left if random.random() < 0.1 else tree(random, depth - 1))


def chain(random: Random, longest: int = 9) -> Any:
    made: Any = random.choice(["nil", ("nil",)])
    for _ in range(random.randrange(longest)):
        made = ("cons", numpy.float32(random.random()), made)
    return made


def bush(random: Random, depth: int = 3) -> Any:
    count = random.randrange(4) if depth else 0
    return ("bush", drawn(random), [bush(random, depth - 1) for _ in range(count)])


KINDS = {"tree": (TREE, tree), "list": (LIST, chain), "bush": (BUSH, bush)}


def preorder(trees: list[Any]) -> list[tuple[str, list[int], list[Any]]]:
    """(constructor, numbers of children, values) of all nodes; a shared one occurs several times.

    The number of a node is smaller than that of its next sibling.
    """
    made: list[tuple[str, list[int], list[Any]]] = []
    stack = [(tree, None) for tree in reversed(trees)]
    while stack:
        node, siblings = stack.pop()
        name, *fields = (node,) if isinstance(node, str) else node
        if siblings is not None:
            siblings.append(len(made))
        inner: list[int] = []
        parts = [part for each in fields for part in (each if isinstance(each, list) else [each])]
        below = [part for part in parts if isinstance(part, (tuple, str))]
        values = [part for part in parts if not isinstance(part, (tuple, str))]
        made.append((name, inner, values))
        stack += [(part, inner) for part in reversed(below)]
    return made


def same(one: Any, other: Any) -> bool:
    """Whether two nested values are equal; a constructor alone is a tuple of its name."""
    stack = [(one, other)]
    while stack:
        first, second = stack.pop()
        first, second = ((each,) if isinstance(each, str) else each for each in (first, second))
        if isinstance(first, (tuple, list)):
            if type(first) is not type(second) or len(first) != len(second):
                return False
            if isinstance(first, tuple) and first[0] != second[0]:
                return False
            stack += zip(first[isinstance(first, tuple) :], second[isinstance(second, tuple) :])
        elif not numpy.array_equal(first, second):
            return False
    return True


def program(low: int = 0) -> Graph:
    """For each tree: its root's number as a float, plus the sum of all leaves, plus w."""
    g = Builder("summed")
    trees, leaves, nodes = (g.dim(name) for name in ("trees", "leaves", "nodes"))
    d = g.dim("D", low)
    roots = g.input("t", int64, (trees,))
    x = g.input("t.x", float32, (leaves, d))
    left, right = (g.input(f"t.{name}", int64, (nodes,)) for name in ("left", "right"))
    w = g.input("w", float32, (d,))
    total = g.reduce_sum(x, axes=(0,), keepdims=False)
    ids = g.cast(g.reduce_sum(left + right, axes=(0,), keepdims=False), to=float32)
    g.output("y", g.unsqueeze(g.cast(roots, to=float32), axes=(1,)) + (total + w + ids))
    g.output("ids", roots + 0)
    return g.graph().replace(lists={"t": TREE})
