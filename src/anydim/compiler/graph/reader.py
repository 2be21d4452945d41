"""Parser of the text of a graph; `text.py` shows the format."""

from __future__ import annotations

import textwrap
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from anydim.base.dtypes import DTYPES
from anydim.base.errors import GraphError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph import regions
from anydim.compiler.graph.nodes import FUSED, Constant, Graph, Node
from anydim.compiler.graph.regions import REGION, Region
from anydim.compiler.graph.scan import Scanner
from anydim.compiler.graph.text import FOREIGN_WORDS, held_path
from anydim.lang.surface.group_text import parse_group
from anydim.lang.tree import TensorType
from anydim.runtime.lists import (
    ConstructorPort,
    FieldPort,
    Listed,
    RaggedPort,
    RowTable,
    StructurePort,
    TypePort,
)
from anydim.sizes import Box, Dim, Guard, Size


def read_graph(text: str, constants: Mapping[str, Constant]) -> Graph:
    """Parse the text of a graph; its constants are looked up by name and must match.

    Constants of held graphs have the names of `constants_of`. Raises GraphError with the line,
    counted inside the held graph, for an invalid text.
    """
    return _Reader(constants).read(text)


class _Reader:
    def __init__(self, given: Mapping[str, Constant], path: str = "") -> None:
        self.given = given
        self.path = path
        self.name = ""
        self.dims: list[Dim] = []
        self.constraints: list[Size] = []
        self.types: dict[str, TensorType] = {}
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.constants: dict[str, Constant] = {}
        self.nodes: list[Node] = []
        self.guards: list[Guard] = []
        self.lists: dict[str, Listed | RaggedPort | StructurePort] = {}

    def read(self, text: str) -> Graph:
        for number, first, body in _blocks(text):
            self.line(Scanner(first, number), body)
        box = Box(tuple(self.dims), tuple(self.constraints))
        return Graph(
            self.name, box, FrozenMapping(self.types), tuple(self.inputs), tuple(self.outputs),
            FrozenMapping(self.constants), tuple(self.nodes), tuple(self.guards),
            FrozenMapping(self.lists),
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
            self.guards.append(_guard(scanner))
        elif word in ("list", "optional", "single"):
            name = scanner.name()
            scanner.take("=")
            elements = scanner.name()
            scanner.take(",")
            self.lists[name] = Listed(
                elements, scanner.name(), word == "optional", word == "single"
            )
        elif word == "ragged":
            name = scanner.name()
            self.lists[name] = _ragged(scanner)
        elif word == "structure":
            name = scanner.name()
            self.lists[name] = _structure(scanner)
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
        constant = self.given.get(self.path + name)
        if constant is None:
            scanner.fail(f"a constant given for '{name}'")
        if constant.type != self.types[name] or constant.digest != digest:
            scanner.fail(f"the constant '{name}' that the text was printed with")
        self.constants[name] = constant

    def node(self, scanner: Scanner, body: str) -> None:
        outputs = []
        while not scanner.accept("="):
            outputs.append(self.declare(scanner))
            scanner.accept(",")
        operator = scanner.word()
        scanner.take("(")
        inputs: list[str | None] = []
        while not scanner.accept(")"):
            inputs.append(None if scanner.accept_of(("_",)) else scanner.name())
            scanner.accept(",")
        attributes = _attributes(scanner)
        if operator == FUSED:
            attributes["group"] = parse_group(body)
        elif operator in _REGIONS:
            parts = _Parts(body, partial(held_path, self.path, tuple(outputs)), self.given)
            attributes[REGION] = _REGIONS[operator](parts)
        device = scanner.string() if scanner.accept("on") else ""
        source, frozen = scanner.string(), FrozenMapping(attributes)
        node = Node(operator, tuple(inputs), tuple(outputs), frozen, source, device)
        self.nodes.append(node)


class _Parts:
    """The lines below the head of a node with a region: words, scans and graphs."""

    def __init__(
        self, body: str, path: Callable[[str], str], given: Mapping[str, Constant]
    ) -> None:
        self.lines: dict[str, Scanner] = {}
        self.scans: list[regions.Scan] = []
        self.graphs: dict[str, Graph] = {}
        for number, first, inner in _blocks(body):
            scanner = Scanner(first, number)
            word = scanner.word()
            if word == "scan":
                self.scans.append(_scan(scanner))
            elif inner:
                self.graphs[word] = _Reader(given, path(word)).read(inner)
            else:
                self.lines[word] = scanner

    def line(self, word: str) -> Scanner:
        """The line that starts with a word."""
        if word not in self.lines:
            raise GraphError(f"graph text: a node lacks its line '{word}'")
        return self.lines[word]

    def graph(self, word: str) -> Graph:
        if word not in self.graphs:
            raise GraphError(f"graph text: a node lacks its graph '{word}'")
        return self.graphs[word]


def _sizes(parts: _Parts) -> Region:
    scanner = parts.line("dims")
    dims = []
    while not scanner.at_end():
        dims.append(scanner.word())
    return regions.Sizes(tuple(dims), parts.line("row").size() if "row" in parts.lines else None)


def _part(parts: _Parts) -> Region:
    return regions.PartRegion(parts.line("first").size())


def _branch(parts: _Parts) -> Region:
    condition = _guard(parts.line("condition")) if "condition" in parts.lines else None
    return regions.BranchRegion(parts.graph("then"), parts.graph("otherwise"), condition)


def _loop(parts: _Parts) -> Region:
    return regions.LoopRegion(
        body=parts.graph("body"),
        counter=parts.line("counter").word(),
        trips=parts.line("trips").size() if "trips" in parts.lines else None,
        conditional="conditional" in parts.lines,
        carried=parts.line("carried").integer(),
        scans=tuple(parts.scans),
    )


def _call(parts: _Parts) -> Region:
    return regions.CallRegion(parts.graph("body"))


def _foreign(parts: _Parts) -> Region:
    words = {word: parts.line(word).string() for word in FOREIGN_WORDS}
    inputs, outputs = (tuple(_strings(parts.line(word))) for word in ("inputs", "outputs"))
    try:
        model = b64decode(parts.line("model").string(), validate=True)
    except ValueError:
        raise GraphError("graph text: the model of a node is not base64") from None
    return regions.Foreign(words["engine"], model, inputs, outputs, words["operator"], words["why"])


def _strings(scanner: Scanner) -> Iterator[str]:
    while not scanner.at_end():
        yield scanner.string()


_REGIONS = {
    regions.SIZES: _sizes, regions.PART: _part, regions.BRANCH: _branch, regions.LOOP: _loop,
    regions.CALL: _call, regions.FOREIGN: _foreign,
}  # fmt: skip


def _scan(scanner: Scanner) -> regions.Scan:
    position = scanner.size()
    extent = scanner.size() if scanner.accept("extent") else None
    flags = (scanner.accept(word) for word in ("history", "initial", "joined"))
    return regions.Scan(position, extent, *flags)


def _ragged(scanner: Scanner) -> RaggedPort:
    scanner.take("=")
    values = scanner.name()
    scanner.take("shape")
    shape = scanner.shape()
    scanner.take("counted")
    counted = scanner.size()
    flags = (scanner.accept("flat"), scanner.accept("ones"))
    scanner.take("rows")
    rows = scanner.name()
    scanner.take("sums")
    sums = scanner.name()
    dims: list[Dim] = []
    units: list[Size] = []
    longest, totals, summed = [], [], []
    while scanner.accept("dim"):
        name, low = scanner.word(), scanner.integer()
        scanner.take("..")
        dims.append(Dim(name, low, None if scanner.peek(";") else scanner.integer()))
        scanner.take(";")
        longest.append(scanner.word())
    while scanner.accept("unit"):
        units.append(scanner.size())
        totals.append(scanner.word())
        summed += totals[-1:] if scanner.accept("summed") else []
    of_dims = (tuple(dims), tuple(longest))
    table = RowTable(rows, sums, *of_dims, tuple(units), tuple(totals), tuple(summed))
    return RaggedPort(values, table, shape, counted, *flags)


def _structure(scanner: Scanner) -> StructurePort:
    scanner.take("=")
    roots = scanner.name()
    scanner.take("of")
    type = scanner.name()
    types = []
    while scanner.accept("type"):
        name, constructors = scanner.name(), []
        while scanner.accept("constructor"):
            of, fields = scanner.name(), []
            while scanner.accept("field"):
                fields.append(_field(scanner))
            constructors.append(ConstructorPort(of, tuple(fields)))
        types.append(TypePort(name, tuple(constructors)))
    return StructurePort(type, tuple(types), roots)


def _field(scanner: Scanner) -> FieldPort:
    name = scanner.name()
    scanner.take("=")
    values = scanner.name()
    if not scanner.accept("of"):
        return FieldPort(name, values, shape=scanner.shape())
    type = scanner.name()
    return FieldPort(name, values, type, (), scanner.name() if scanner.accept("offsets") else "")


def _guard(scanner: Scanner) -> Guard:
    left = scanner.size()
    relation = scanner.one_of(("==", "!=", "<=", "<"))
    return Guard(left, relation, scanner.size(), scanner.string())


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
