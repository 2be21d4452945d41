"""Reading the text of a graph back; `text.py` shows what it looks like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anydim.base.dtypes import DTYPES
from anydim.base.frozen import FrozenMapping
from anydim.graph.nodes import FUSED, Constant, Graph, Node
from anydim.graph.scan import Scanner
from anydim.graph.text import INFIX
from anydim.lang.functions import FUNCTIONS
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Expr,
    Group,
    Index,
    Literal,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
)  # fmt: skip
from anydim.sizes import Box, Dim, Guard, Size

_BY_INFIX = {spelling: name for name, spelling in INFIX.items()}


def read_graph(text: str, constants: Mapping[str, Constant]) -> Graph:
    """The graph that a text says; its constants are looked up by name and must fit.

    Raises GraphError with the line for a text that cannot be read.
    """
    return _GraphReader(constants).read(text)


class _GraphReader:
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
        lines = [line for line in enumerate(text.splitlines(), 1) if line[1].strip()]
        position = 0
        while position < len(lines):
            scanner = Scanner(lines[position][1], lines[position][0])
            position += 1
            body = []
            while position < len(lines) and lines[position][1].startswith(" "):
                body.append(Scanner(lines[position][1], lines[position][0]))
                position += 1
            self.line(scanner, body)
        box = Box(tuple(self.dims), tuple(self.constraints))
        return Graph(
            self.name, box, FrozenMapping(self.types), tuple(self.inputs), tuple(self.outputs),
            FrozenMapping(self.constants), tuple(self.nodes), tuple(self.guards),
        )  # fmt: skip

    def line(self, scanner: Scanner, body: list[Scanner]) -> None:
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
            self.guards.append(_read_guard(scanner))
        elif word == "constant":
            self.constant(scanner)
        elif word == "node":
            self.node(scanner, body)
        else:
            scanner.fail("graph, dim, constraint, input, constant, node, guard or output")
        scanner.end()

    def declare(self, scanner: Scanner) -> str:
        tensor = _read_tensor(scanner)
        self.types[tensor.name] = tensor.type
        return tensor.name

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

    def node(self, scanner: Scanner, body: list[Scanner]) -> None:
        outputs = [self.declare(scanner)]
        while scanner.accept(","):
            outputs.append(self.declare(scanner))
        scanner.take("=")
        operator = scanner.word()
        scanner.take("(")
        inputs: list[str | None] = []
        while not scanner.accept(")"):
            inputs.append(None if scanner.accept_word("_") else scanner.name())
            scanner.accept(",")
        attributes = _read_attributes(scanner)
        source = scanner.string()
        if operator == FUSED:
            names = tuple(name for name in inputs if name is not None)
            attributes["group"] = self.group(names, tuple(outputs), body)
        node = Node(operator, tuple(inputs), tuple(outputs), FrozenMapping(attributes), source)
        self.nodes.append(node)

    def group(
        self, inputs: tuple[str, ...], outputs: tuple[str, ...], body: list[Scanner]
    ) -> Group:
        types = dict(self.types)
        temporaries: list[Tensor] = []
        guards: list[Guard] = []
        statements: list[Statement] = []
        for scanner in body:
            if scanner.accept_word("temporary"):
                temporaries.append(_read_tensor(scanner))
            elif scanner.accept_word("in") or scanner.accept_word("out"):
                tensor = _read_tensor(scanner)
                types[tensor.name] = tensor.type
            elif scanner.accept_word("guard"):
                guards.append(_read_guard(scanner))
            else:
                statements.append(read_statement(scanner))
            scanner.end()
        return Group(
            tuple(Tensor(name, types[name]) for name in inputs),
            tuple(Tensor(name, types[name]) for name in outputs),
            tuple(statements), tuple(temporaries), tuple(guards),
        )  # fmt: skip


def read_statement(scanner: Scanner) -> Statement:
    """The statement that a line says."""
    target = scanner.name()
    axes = _read_axes(scanner)
    combine, reduced = "", ()
    if not scanner.accept("="):
        combine = scanner.word()
        if not scanner.accept_word("over"):
            scanner.fail("over")
        reduced = _read_axes(scanner)
        scanner.take("=")
    return Statement(target, axes, read_expr(scanner), combine, reduced)


def read_expr(scanner: Scanner) -> Expr:
    """The expression at the scanner's place."""
    if scanner.peek("{"):
        return SizeTerm(scanner.size())
    if scanner.accept("("):
        left = read_expr(scanner)
        function = _BY_INFIX[scanner.one_of(_BY_INFIX)]
        right = read_expr(scanner)
        scanner.take(")")
        return Apply(function, (left, right))
    number = scanner.number()
    if number is not None:
        dtype = DTYPES[scanner.word()] if scanner.accept(":") else None
        return Literal(number, dtype)
    for table in (DTYPES, FUNCTIONS):
        word = scanner.accept_of(table)
        if word:
            scanner.take("(")
            arguments = _read_arguments(scanner, ")")
            return Cast(DTYPES[word], arguments[0]) if word in DTYPES else Apply(word, arguments)
    return _read_read(scanner)


def _read_read(scanner: Scanner) -> Expr:
    name = scanner.name()
    flat = scanner.accept("[")
    if not flat and not scanner.accept("("):
        return Index(name)
    close = "]" if flat else ")"
    indices = []
    default = None
    while not scanner.accept(close):
        if scanner.accept("|"):
            default = read_expr(scanner)
        else:
            indices.append(read_expr(scanner))
            scanner.accept(",")
    return Read(name, tuple(indices), flat, default)


def _read_arguments(scanner: Scanner, close: str) -> tuple[Expr, ...]:
    arguments = []
    while not scanner.accept(close):
        arguments.append(read_expr(scanner))
        scanner.accept(",")
    return tuple(arguments)


def _read_axes(scanner: Scanner) -> tuple[Axis, ...]:
    axes = []
    scanner.take("[")
    while not scanner.accept("]"):
        name = scanner.name()
        scanner.take(":")
        axes.append(Axis(name, scanner.size()))
        scanner.accept(",")
    return tuple(axes)


def _read_tensor(scanner: Scanner) -> Tensor:
    name = scanner.name()
    scanner.take(":")
    dtype = scanner.accept_of(DTYPES)
    if not dtype:
        scanner.fail("an element type")
    return Tensor(name, TensorType(DTYPES[dtype], scanner.shape()))


def _read_guard(scanner: Scanner) -> Guard:
    left = scanner.size()
    relation = scanner.one_of(("==", "!=", "<=", "<"))
    return Guard(left, relation, scanner.size(), scanner.string())


def _read_attributes(scanner: Scanner) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if scanner.accept("{"):
        while not scanner.accept("}"):
            name = scanner.name()
            scanner.take(":")
            attributes[name] = _read_value(scanner)
            scanner.accept(",")
    return attributes


def _read_value(scanner: Scanner) -> Any:
    if scanner.accept("("):
        items = []
        while not scanner.accept(")"):
            items.append(_read_value(scanner))
            scanner.accept(",")
        return tuple(items)
    if scanner.accept_word("none"):
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
