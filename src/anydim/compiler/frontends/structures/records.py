"""Records of the calls of a recursion: cases with what they read, compute and call.

    match t {                             decision of t: by constructor
      leaf(x) { h(i) = x(i) }             case 0: field x, no calls
      node(l, r) { a = f(l)  b = f(r)     case 1: calls f at t.left and t.right
                   h(i) = a(i) + b(i) }
    }

A definition with values for its tensors is an `Instance`: the tensors of a recursion are those of
the program, the same in all calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from itertools import chain
from typing import Any

from anydim.base.errors import LanguageError
from anydim.base.records import dataclass
from anydim.lang.surface.syntax import Definition, Item, Parameter, StructureType


@dataclass(frozen=True)
class Step:
    """From a node to a field's nodes; `of` is the node's (type, constructor)."""

    of: tuple[str, str]
    field: str


@dataclass(frozen=True)
class Place:
    """A path from a structure parameter through fields; `several`: it leads to a list."""

    parameter: int
    steps: tuple[Step, ...]
    type: str
    several: bool = False


@dataclass(frozen=True)
class Field:
    """A tensor field of the node at a place, which has this constructor."""

    owner: Place
    constructor: str
    parameter: Parameter


@dataclass(frozen=True)
class Call:
    """A call in a case: `targets` are its results in the case, `callee` the instance's key.

    `several` is the size that counts the calls, one for each structure of the first place. `passed`
    are the values of the case that the callee gets, by parameter.
    """

    targets: tuple[str, ...]
    callee: Key
    places: tuple[Place, ...]
    several: str = ""
    passed: tuple[tuple[str, str], ...] = ()
    position: int = 0


@dataclass(frozen=True)
class Site:
    """A node that a case makes: `target` is the number of it, `arguments` its fields."""

    target: str
    type: str
    constructor: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """A decision tree: by the constructor of the node at a place, a case or a decision."""

    place: Place
    branches: tuple[Decision | int, ...]


Sources = tuple[tuple[int, str], ...]  # by structure: that of the program, and its type there
Key = tuple[str, Sources, tuple[tuple[str, str], ...], tuple[tuple[str, Any], ...]]


@dataclass(eq=False)
class Case:
    """A case of an instance.

    `sites` are the nodes that it makes, `nodes` the structures that it uses as values.
    """

    instance: Instance
    constructors: dict[Place, str]
    fields: dict[str, Field]
    calls: list[Call]
    sites: list[Site]
    nodes: dict[str, Place]
    statements: tuple[Item, ...]
    name: str = ""

    @property
    def constructor(self) -> str:
        """The constructor of the first structure; empty for any."""
        return self.constructors.get(self.instance.places[0], "")


@dataclass(eq=False)
class Instance:
    """A definition with the names of the program's tensors that its parameters are.

    `sources` are the numbers of the program's structures that its structures are parts of, and
    their types there. Each call gets values for the other parameters, `passed`, also for structures
    that the recursion makes. `types` have the names of the program, and the fields of the
    definition; `names` are the names of the program of the definition's types.
    """

    definition: Definition
    sources: Sources
    tensors: Mapping[str, str]  # by parameter
    attributes: Mapping[str, Any]
    known: Mapping[str, Definition]
    types: Mapping[str, StructureType]
    names: Mapping[str, str]
    cases: list[Case] = field(default_factory=list)
    decision: Decision | int = 0

    @property
    def key(self) -> Key:
        tensors, attributes = sorted(self.tensors.items()), sorted(self.attributes.items())
        return self.definition.name, self.sources, tuple(tensors), tuple(attributes)

    @property
    def structures(self) -> list[Parameter]:
        """The parameters that are parts of the program's structures."""
        own = structures_of(self.definition)
        return [each for each, (source, _) in zip(own, self.sources) if source >= 0]

    @property
    def places(self) -> list[Place]:
        """The structures of these parameters."""
        kinds = (kind for source, kind in self.sources if source >= 0)
        return [Place(number, (), kind) for number, kind in enumerate(kinds)]

    @property
    def held(self) -> tuple[int, ...]:
        """The program's structures that they are parts of."""
        return tuple(source for source, _ in self.sources if source >= 0)

    @property
    def passed(self) -> list[Parameter]:
        """The parameters that get a value in each call."""
        known = {each.name for each in self.structures} | self.tensors.keys()
        return [each for each in self.definition.parameters if each.name not in known]

    @property
    def kinds(self) -> list[str]:
        """The types of its structures."""
        return [place.type for place in self.places]

    def parameter(self, name: str) -> Parameter:
        """The parameter of that name."""
        return next(each for each in self.definition.parameters if each.name == name)

    def error(self, position: int, problem: str, hint: str = "") -> LanguageError:
        return self.definition.error(position, problem, hint)


def structures_of(definition: Definition) -> list[Parameter]:
    """The structure parameters of a definition."""
    known = {each.name for each in definition.types}
    return [each for each in definition.parameters if each.type in known]


def tensors_of(definition: Definition) -> list[Parameter]:
    """The other parameters."""
    known = {each.name for each in definition.types}
    return [each for each in definition.parameters if each.type not in known]


def reachable_types(root: str, known: Mapping[str, StructureType]) -> list[StructureType]:
    """A type and those of its fields, in the order of their declarations."""
    found, waiting = {root}, [root]
    while waiting:
        fields = chain.from_iterable(c.fields for c in known[waiting.pop()].constructors)
        new = {each.type for each in fields if each.type in known} - found
        found |= new
        waiting += sorted(new)
    return [kind for kind in known.values() if kind.name in found]


def input_name(parameter: str, root: str, kind: StructureType, constructor: str) -> str:
    """The name of a constructor's inputs: `t.leaf`, or `t.List_Tree.cons` of another type."""
    other = re.sub(r"\W+", "_", kind.name).strip("_")
    parts = (parameter, constructor) if kind.name == root else (parameter, other, constructor)
    return ".".join(parts)
