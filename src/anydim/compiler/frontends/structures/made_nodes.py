"""Structures that a recursion makes: new nodes have numbers, so results are integers.

A case that makes a node makes one in each of its calls. The nodes of a constructor are, in order,
those of the program's structures if results refer to them, and those of each site. A node
that no result refers to is part of no structure.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.compiler.frontends.structures.records import Site, input_name, reachable_types
from anydim.compiler.frontends.structures.recursion import Recursion
from anydim.lang.surface.syntax import StructureType
from anydim.lang.tree import Apply, Axis, Expr, Index, Read, SizeTerm, Statement, TensorType
from anydim.runtime.lists import ConstructorPort, FieldPort, StructurePort, TypePort
from anydim.sizes import Size, as_size


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of a constructor: those of the program's structure `source`, or of a site of a case."""

    source: int = -1
    case: int = -1
    site: int = -1


class NewNodes:
    """Numbers the nodes that results may refer to."""

    def __init__(self, recursion: Recursion) -> None:
        self.recursion = recursion
        self.types = {kind.name: kind for kind in recursion.definition.types}
        self.kept: list[tuple[int, str]] = []  # structures of the program that results refer to
        for case in recursion.cases:
            for place in case.nodes.values():
                self._keep(case.instance.held[place.parameter], place.type)

    def _keep(self, source: int, kind: str) -> None:
        if (source, kind) in self.kept:
            return
        self.kept.append((source, kind))
        for constructor in self.types[kind].constructors:
            for field in constructor.fields:
                if field.type in self.types:
                    self._keep(source, field.type)

    def parts(self, kind: str, constructor: str) -> list[NodeGroup]:
        """The nodes of a constructor, in order."""
        found = [NodeGroup(source=source) for source, name in self.kept if name == kind]
        for number, case in enumerate(self.recursion.cases):
            for position, site in enumerate(case.sites):
                if (site.type, site.constructor) == (kind, constructor):
                    found.append(NodeGroup(case=number, site=position))
        return found

    def size(self, kind: str, constructor: str, part: NodeGroup) -> Size:
        """The number of nodes of a part."""
        if part.source >= 0:
            return self.recursion.counts_of(part.source, kind)[constructor]
        return self.recursion.calls(part.case)

    def count(self, kind: str, constructor: str) -> Size:
        """The number of nodes of a constructor."""
        if not self.types[kind].constructor(constructor).fields:
            return as_size(1)
        parts = self.parts(kind, constructor)
        return sum((self.size(kind, constructor, part) for part in parts), as_size(0))

    def first(self, kind: str, constructor: str, part: NodeGroup | None = None) -> Size:
        """The number of the first node of a constructor, or of a part of it."""
        found = as_size(0)
        for each in self.types[kind].constructors:
            if each.name == constructor:
                break
            found = found + self.count(kind, each.name)
        if part is None or not self.types[kind].constructor(constructor).fields:
            return found
        for each_part in self.parts(kind, constructor):
            if each_part == part:
                return found
            found = found + self.size(kind, constructor, each_part)
        raise AssertionError(part)

    def of_site(self, case: int, position: int, calls: Size, target: str) -> Statement:
        """The numbers of the nodes that the calls of a case make."""
        site: Site = self.recursion.cases[case].sites[position]
        first = self.first(site.type, site.constructor, NodeGroup(case=case, site=position))
        body: Expr = SizeTerm(first)
        if self.types[site.type].constructor(site.constructor).fields:
            body = Apply("add", (body, Index("n")))
        return Statement(target, (Axis("n", calls),), body)

    def of_source(self, source: int, kind: str, value: Expr) -> Expr:
        """The number among all nodes of a node of the program's structure."""
        counts = self.recursion.counts_of(source, kind)
        ends, end = [], as_size(0)
        for constructor, count in counts.items():
            new = self.first(kind, constructor, NodeGroup(source=source))
            end = end + count
            ends.append((end, new - (end - count)))
        found: Expr = Apply("add", (value, SizeTerm(ends[-1][1])))
        for end, moved in reversed(ends[:-1]):
            inside = Apply("less", (value, SizeTerm(end)))
            found = Apply("select", (inside, Apply("add", (value, SizeTerm(moved))), found))
        return found


class Results:
    """The results of a recursion, for the roots."""

    def __init__(self, recursion: Recursion, named: Callable[[str], str]) -> None:
        self.recursion, self.named = recursion, named
        self.new, self.emitter = recursion.new, recursion.emitter

    def run(self) -> dict[str, str | StructurePort]:
        recursion = self.recursion
        roots, instance = recursion.results_of_levels["roots",], recursion.instances[0]
        found: dict[str, str | StructurePort] = {}
        for number, name in enumerate(recursion.definition.results):
            table = recursion.tables[instance.key, number]
            kinds = recursion.definition.result_types
            kind = kinds[number] if kinds else ""
            value = self.named(name)
            if not kind:
                found[name] = self.emitter.emit("gather", table, roots, called=value)
                continue
            held = self.emitter.emit("gather", table, roots, called=f"{value}.roots")
            found[name] = self.port(value, kind, held)
        return found

    def port(self, name: str, kind: str, roots: str) -> StructurePort:
        """The arrays of a structure that is a result."""
        from_types = reachable_types(kind, self.new.types)
        types = tuple(
            TypePort(each.name, tuple(
                ConstructorPort(constructor.name, tuple(
                    self.field(name, kind, each, constructor.name, number)
                    for number in range(len(constructor.fields))
                ))
                for constructor in each.constructors
            ))
            for each in from_types
        )  # fmt: skip
        return StructurePort(kind, types, roots)

    def field(
        self, name: str, root: str, kind: StructureType, constructor: str, number: int
    ) -> FieldPort:
        """A field of all nodes of a constructor."""
        parameter = kind.constructor(constructor).fields[number]
        value = f"{input_name(name, root, kind, constructor)}.{parameter.name}"
        parts = [
            self.part(kind.name, constructor, number, part)
            for part in self.new.parts(kind.name, constructor)
        ]
        structure = parameter.type if parameter.type in self.new.types else ""
        if not parts:
            kind_of_field = TensorType(int64, (as_size(0),))
            if not structure:
                kind_of_field = self._field_type(kind.name, constructor, parameter.name)
            made = self.emitter.emit(
                "fill", shape=(as_size(0), *kind_of_field.shape[1:]), value=0.0,
                dtype=kind_of_field.dtype, called=value,
            )  # fmt: skip
            return FieldPort(parameter.name, made, structure, kind_of_field.shape[1:])
        if parameter.shape and structure:
            raise self.recursion.definition.error(
                self.recursion.definition.position,
                f"the result '{name}' has the field '{parameter.name}' of any number of structures",
                "fields of results are single structures",
            )  # fmt: skip
        if not structure:
            wanted = self._field_type(kind.name, constructor, parameter.name)
            parts = [self.emitter.convert(part, wanted) for part in parts]
        kinds = {self.emitter.types[each].shape[1:] for each in parts}
        if len(kinds) > 1:
            shown = " and ".join(sorted(f"({', '.join(map(str, each))})" for each in kinds))
            raise self.recursion.definition.error(
                self.recursion.definition.position,
                f"field '{parameter.name}' of the result '{name}' has the sizes {shown}",
            )  # fmt: skip
        made = self.emitter.emit("identity", self.emitter.concatenate(parts), called=value)
        shape = () if structure else self.emitter.types[made].shape[1:]
        return FieldPort(parameter.name, made, structure, shape)

    def _field_type(self, kind: str, constructor: str, field: str) -> TensorType:
        """The type of a field in the structures of the program."""
        values = self.recursion.fields
        name = next(v for (_, *key), v in values.items() if key == [kind, constructor, field])
        return self.emitter.types[name]

    def part(self, kind: str, constructor: str, number: int, part: NodeGroup) -> str:
        """A field of the nodes of a part."""
        recursion = self.recursion
        if part.source < 0:
            return recursion.exports[part.case, part.site, number]
        parameter = self.new.types[kind].constructor(constructor).fields[number]
        value = recursion.fields[part.source, kind, constructor, parameter.name]
        if parameter.type not in self.new.types:
            return value
        own = self.emitter.types[value]
        read = Read(value, (Index("n"),))
        body = self.new.of_source(part.source, parameter.type, read)
        target = self.emitter.fresh(f"{value}.moved")
        return self.emitter.statement(Statement(target, (Axis("n", own.shape[0]),), body), own)
