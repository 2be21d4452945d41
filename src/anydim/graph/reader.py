"""Reading the text of a graph back; `text.py` shows what it looks like."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from anydim.base.dtypes import DTYPES
from anydim.base.errors import GraphError
from anydim.base.frozen import FrozenMapping
from anydim.graph.nodes import FUSED, Constant, Graph, Node
from anydim.graph.scan import Scanner
from anydim.lang.group_text import parse_group
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, Guard, Size


def read_graph(text: str, constants: Mapping[str, Constant]) -> Graph:
    """The graph that a text says; its constants are looked up by name and must fit.

    Raises GraphError with the line for a text that cannot be read.
    """
    return _Reader(constants).read(text)


class _Reader:
    def __init__(self, given: Mapping[str, Constant]) -> None:
        self.given = given
        self.name = ""
        self.dims: list[Dim] = []
        self.constraints: list[Size] = []
        self.types: dict[str, TensorType] = {}
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.constants: dict[str, Constant] = {}
        self.nodes: list[Node] = []
        self.guards: list[Guard] = []

    def read(self, text: str) -> Graph:
        for number, first, body in _blocks(text):
            self.line(Scanner(first, number), body)
        box = Box(tuple(self.dims), tuple(self.constraints))
        return Graph(
            self.name, box, FrozenMapping(self.types), tuple(self.inputs), tuple(self.outputs),
            FrozenMapping(self.constants), tuple(self.nodes), tuple(self.guards),
        )  # fmt: skip

    def line(self, scanner: Scanner, body: str) -> None:
        word = scanner.word()
        if word == "graph":
            self.name = scanner.string()
        elif word == "dim":
            name, low = scanner.word(), scanner.integer()
            scanner.take("..")
            self.dims.append(Dim(name, low, None if scanner.at_end() else scanner.integer()))
        elif word == "constraint":
            self.constraints.append(scanner.size())
        elif word == "input":
            self.inputs.append(self.declare(scanner))
        elif word == "output":
            self.outputs.append(scanner.name())
        elif word == "guard":
            left = scanner.size()
            relation = scanner.one_of(("==", "!=", "<=", "<"))
            self.guards.append(Guard(left, relation, scanner.size(), scanner.string()))
        elif word == "constant":
            self.constant(scanner)
        elif word == "node":
            self.node(scanner, body)
        else:
            raise GraphError(f"graph text, line {scanner.line}: a line cannot start with '{word}'")
        scanner.end()

    def declare(self, scanner: Scanner) -> str:
        name = scanner.name()
        scanner.take(":")
        dtype = scanner.accept_of(DTYPES)
        if not dtype:
            scanner.fail("an element type")
        self.types[name] = TensorType(DTYPES[dtype], scanner.shape())
        return name

    def constant(self, scanner: Scanner) -> None:
        name = self.declare(scanner)
        scanner.take("=")
        digest = scanner.match(r"[0-9a-f]{16}", "a digest")
        constant = self.given.get(name)
        if constant is None:
            scanner.fail(f"a constant given for '{name}'")
        if constant.type != self.types[name] or constant.digest != digest:
            scanner.fail(f"the constant '{name}' that the text was printed with")
        self.constants[name] = constant

    def node(self, scanner: Scanner, body: str) -> None:
        outputs = [self.declare(scanner)]
        while scanner.accept(","):
            outputs.append(self.declare(scanner))
        scanner.take("=")
        operator = scanner.word()
        scanner.take("(")
        inputs: list[str | None] = []
        while not scanner.accept(")"):
            inputs.append(None if scanner.accept_of(("_",)) else scanner.name())
            scanner.accept(",")
        attributes = _attributes(scanner)
        if operator == FUSED:
            attributes["group"] = parse_group(body)
        source = scanner.string()
        node = Node(operator, tuple(inputs), tuple(outputs), FrozenMapping(attributes), source)
        self.nodes.append(node)


def _blocks(text: str) -> list[tuple[int, str, str]]:
    """(line number, line, the indented lines below it)."""
    blocks: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(" ") and blocks:
            blocks[-1][2].append(line)
        elif line.strip():
            blocks.append((number, line, []))
    return [(number, line, textwrap.dedent("\n".join(body))) for number, line, body in blocks]


def _attributes(scanner: Scanner) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if scanner.accept("{"):
        while not scanner.accept("}"):
            name = scanner.name()
            scanner.take(":")
            attributes[name] = _value(scanner)
            scanner.accept(",")
    return attributes


def _value(scanner: Scanner) -> Any:
    if scanner.accept("("):
        items = []
        while not scanner.accept(")"):
            items.append(_value(scanner))
            scanner.accept(",")
        return tuple(items)
    if scanner.accept_of(("none",)):
        return None
    if scanner.peek("{"):
        return scanner.size()
    if scanner.peek('"'):
        return scanner.string()
    dtype = scanner.accept_of(DTYPES)
    if dtype:
        return DTYPES[dtype]
    number = scanner.number()
    if number is None:
        scanner.fail("a value")
    return number
