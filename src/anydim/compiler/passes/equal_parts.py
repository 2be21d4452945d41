"""Parts of one form are compiled once: equal layers of a network differ in weights and names.

All passes and `schedule` run on the first part of each form. The others take its launches, with
their own names, and constants that the same steps derive from their own weights. Where a pass
decided by the elements of a weight (`graph/derivations.py`), those of the others must be equal, or
have the same facts; a part with others is compiled for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import field, replace

from anydim.base.errors import UserError
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.compiler.passes.canonical_groups import IndexCheck
from anydim.compiler.passes.flow import unique_name
from anydim.compiler.passes.graph_forms import GraphForm, form_of
from anydim.compiler.passes.schedule import Alias, Scheduled
from anydim.compiler.passes.segment import Part

Launches = tuple[Scheduled | Alias, ...]
Made = tuple[Graph, Launches]  # a part after all passes, and its launches
_ENDS = "/'."  # a pass names a value after another one, then one of these


def compile_parts(
    parts: Sequence[Part], run: Callable[[Sequence[Part]], Sequence[Made]]
) -> list[Made]:
    """Return what `run` makes of each part; it gets one part of each form, then unlike ones."""
    firsts: dict[Hashable, _First] = {}
    others: dict[int, tuple[_First, GraphForm]] = {}
    for number, part in enumerate(parts):
        form = form_of(part.graph)
        key = (form.key, part.counter, part.device) if not part.opaque else number
        if key in firsts:
            others[number] = firsts[key], form
        else:
            firsts[key] = _First(number, form)
    made = dict(zip((first.number for first in firsts.values()),
                    run([parts[first.number] for first in firsts.values()])))  # fmt: skip
    for number, (first, form) in others.items():
        found = first.for_other(made[first.number], parts[number].graph, form)
        if found is not None:
            made[number] = found
    unlike = [number for number in others if number not in made]
    if unlike:
        made.update(zip(unlike, run([parts[number] for number in unlike])))
    return [made[number] for number in range(len(parts))]


@dataclass(frozen=True)
class _First:
    """The first part of a form; `reads` and `facts` count what was decided by weights before."""

    number: int
    form: GraphForm
    before: tuple[tuple[int, int], ...] = field(init=False)

    def __post_init__(self) -> None:
        before = tuple((each.reads, len(each.facts)) for each in self.form.weights)
        object.__setattr__(self, "before", before)

    def for_other(self, made: Made, graph: Graph, form: GraphForm) -> Made | None:
        """What was made of this part, for another one; None if decisions differ."""
        other = _Other(self.form, graph, form)
        try:
            if all(map(other.decides_alike, self.form.weights, self.before)):
                return other.take(*made)
        except UserError:  # a step that its weights do not allow
            return None
        return None


class _Other:
    """Renames what was made of a part for another one of its form."""

    def __init__(self, first: GraphForm, graph: Graph, form: GraphForm) -> None:
        self.graph = graph
        self.names = dict(zip(first.values, form.values))
        self.taken = set(form.values)
        self.sources = dict(zip(first.sources, form.sources))
        self.constants = dict(zip(first.weights, form.weights))

    def decides_alike(self, first: Constant, before: tuple[int, int]) -> bool:
        """Whether the decisions by a weight of the first part hold for the other's."""
        reads, facts = before
        if first.reads > reads:
            own = self.constants[first]
            if own.array.tobytes() != first.elements.tobytes():
                return False
        return all(self.constant(c).are(fact) == answer for c, fact, answer in first.facts[facts:])

    def constant(self, first: Constant) -> Constant:
        """The constant that the same steps derive from the other's weights."""
        if first not in self.constants:
            self.constants[first] = first.again(self.constant)
        return self.constants[first]

    def name(self, first: str) -> str:
        """The name of a value; that of a pass's is made after the same value's as the first's."""
        if first not in self.names:
            ends = (n for n in range(len(first) - 1, 0, -1) if first[n] in _ENDS)
            stems = ((first[:end], first[end:]) for end in ends if first[:end] in self.names)
            stem, rest = next(stems, ("", first))
            self.names[first] = unique_name(self.names.get(stem, "") + rest, self.taken)
            self.taken.add(self.names[first])
        return self.names[first]

    def take(self, graph: Graph, launches: Launches) -> Made:
        """The graph without nodes, which only its launches are made of, and its launches."""
        own = graph.replace(
            types={self.name(name): kind for name, kind in graph.types.items()},
            inputs=tuple(map(self.name, graph.inputs)),
            outputs=tuple(map(self.name, graph.outputs)),
            constants={self.name(n): self.constant(c) for n, c in graph.constants.items()},
            nodes=(),
        )
        return own, tuple(self._launches(launches))

    def _launches(self, launches: Launches) -> Iterator[Scheduled | Alias]:
        for item in launches:
            if isinstance(item, Alias):
                yield Alias(self.name(item.target), self.name(item.source))
                continue
            yield replace(
                item, source=self.source(item.source),
                values={tensor: self.name(value) for tensor, value in item.values.items()},
                checks=tuple(map(self._check, item.checks)),
            )  # fmt: skip

    def _check(self, first: IndexCheck) -> IndexCheck:
        tensor, indices = (self.names.get(each, each) for each in (first.tensor, first.indices))
        return replace(first, tensor=tensor, indices=indices)

    def source(self, first: str) -> str:
        """The source of a launch; that of a group joins those of its nodes."""
        if first in self.sources:
            return self.sources[first]
        file, mark, nodes = first.rpartition(": ")
        own = (self.sources.get(f"{file}{mark}{n}", f"{file}{mark}{n}") for n in nodes.split(" + "))
        return file + mark + " + ".join(each.removeprefix(file + mark) for each in own)
