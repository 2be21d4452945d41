"""Type inference for a recursion over structures: instances, cases, result types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import Any, TypeAlias

import anydim.compiler.ops  # noqa: F401  fills the registry of operators
from anydim.base.dtypes import DTYPES, DType, float32, float64, int8, int64, uint8
from anydim.base.errors import LanguageError
from anydim.base.records import dataclass
from anydim.compiler.frontends.structures.case_definitions import definition_of, needed_statements
from anydim.compiler.frontends.structures.cases import program_of
from anydim.compiler.frontends.structures.emitter import Emitter
from anydim.compiler.frontends.structures.records import Call, Case, Instance, Key, reachable_types
from anydim.compiler.kernels.routines.level_plan import Bounds, Layout
from anydim.lang.resolve.divisions import division_guards
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.structure_types import sizes_of
from anydim.lang.surface.syntax import (
    TYPE_NAMES,
    Assignment,
    Attribute,
    CallTerm,
    Definition,
    Name,
    items,
    walk,
)
from anydim.lang.tree import Group, Literal, TensorType
from anydim.lang.tree.typing import promote
from anydim.runtime.lists import StructurePort
from anydim.sizes import Box, Dim, Guard, Size, as_size


@dataclass(eq=False)
class Computed:
    """A case with its comprehensions for one call."""

    case: Case
    number: int
    group: Group
    arguments: Mapping[str, str]  # the name in the case of each input of the group
    outputs: Mapping[str, str]  # the result of the group for each name of the case that is one
    calls: dict[str, tuple[int, int]] = field(default_factory=dict)  # (call, result) by name


Instantiated: TypeAlias = tuple[Group, dict[str, str], dict[str, str]]


class Recursion:
    """A call of a definition over structures, emitted into a graph.

    `given` are the values of its tensors, by parameter, and `ports` its structures: their inputs
    are values of the graph. `guards` are conditions on sizes that the graph needs.
    """

    def __init__(
        self, definition: Definition, emitter: Emitter, given: Mapping[str, str],
        ports: Mapping[str, StructurePort], attributes: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.definition, self.emitter, self.ports = definition, emitter, ports
        own = {name: value for name, value in attributes.items() if not name.startswith("...")}
        self.attributes = attributes
        self.instances = program_of(definition, own, given)
        self.by_key = {each.key: each for each in self.instances}
        self.sizes_box = emitter.box
        self.cases = [case for each in self.instances for case in each.cases]
        self.cycles = _cycles(self.instances)
        self.tables: dict[tuple[Key, int], str] = {}
        self.exports: dict[tuple[int, int, int], str] = {}  # fields of new nodes
        self.passed: dict[tuple[Key, str], TensorType] = {}  # values that calls get
        self.arguments: dict[tuple[int, int, str], str] = {}  # by case, call and parameter
        self.outside: dict[tuple[int, str], Any] = {}  # values over all calls of a case
        self.new: Any = None  # the numbers of new nodes
        self.layout, self.bounds = Layout({}), Bounds(Layout({}), (), ())  # of the calls
        self.results_of_levels: dict[tuple[Any, ...], str] = {}
        self.dims: dict[tuple[Any, ...], str] = {}
        self.guards: tuple[Guard, ...] = ()
        self.fields = {
            (number, kind.name, constructor.name, each.name): each.values
            for number, port in enumerate(ports.values()) for kind in port.types
            for constructor in kind.constructors for each in constructor.fields
        }  # fmt: skip
        self.groups: dict[Any, Instantiated] = {}
        self.computed = self._results()
        guards = (guard for each in self.computed for guard in each.group.guards)
        self.guards = tuple(dict.fromkeys(guards))

    # ---- types of results ----------------------------------------------------------------------

    def _results(self) -> list[Computed]:
        """The comprehensions of all cases; element types of results are a least fixed point."""
        self.results: dict[Key, list[TensorType]] = {}
        self.fixed: set[Key] = set()  # instances of cycles that are done
        self.adapted: set[tuple[Key, int]] = set()  # results whose literals have another type
        self._find_passed()
        for cycle in self.cycles:
            self._results_of([self.instances[number] for number in cycle])
            self.fixed.update(self.instances[number].key for number in cycle)
        return [self._compute(number, case) for number, case in enumerate(self.cases)]

    def _results_of(self, instances: Sequence[Instance]) -> None:
        cases = [case for each in instances for case in each.cases]
        waiting = list(cases)
        while waiting:
            ready = [c for c in waiting if all(call.callee in self.results for call in c.calls)]
            for case in ready or [self._guess_results(waiting)]:
                self._merge(case)
            waiting = [case for case in waiting if case not in ready]
        self._adapt(cases)
        grows = True
        while grows:  # until no element type changes
            grows = any(list(map(self._merge, cases)))

    def _adapt(self, cases: Sequence[Case]) -> None:
        """Give results that begin as literals the types of what other cases combine with them.

        They are those that the cases give if the results have a narrow type, unless that is the
        narrow type itself: then nothing but literals is combined, and they keep their own type.
        """
        first = [case for case in cases if all(call.callee in self.fixed for call in case.calls)]
        literals: dict[tuple[Key, int], bool] = {}  # whether only literals begin a result
        for case in first:
            for number, literal in enumerate(self._literals(case)):
                place = case.instance.key, number
                literals[place] = literals.get(place, True) and literal is not None
        places = [place for place, only in literals.items() if only]
        rest = [case for case in cases if case not in first]
        before = {key: list(kinds) for key, kinds in self.results.items()}
        found = [self._combine_narrow(places, rest, narrow) for narrow in (int8, uint8)]
        self.results = before
        for place in places:
            key, number = place
            one, other = (each.get(place) for each in found)
            if one is None or other is None or (one, other) == (int8, uint8):
                continue
            kind = before[key][number]
            if one.is_float or not kind.dtype.is_float:
                before[key][number] = TensorType(one, kind.shape)
                self.adapted.add(place)

    def _combine_narrow(
        self, places: Sequence[tuple[Key, int]], cases: Sequence[Case], narrow: DType
    ) -> dict[tuple[Key, int], DType]:
        """The element types of results that begin with a narrow type; {} if a case has none."""
        self.results = {key: list(kinds) for key, kinds in self.results.items()}
        for key, number in places:
            self.results[key][number] = TensorType(narrow, self.results[key][number].shape)
        found: dict[tuple[Key, int], DType] = {}
        try:
            for _round in range(2 * len(cases)):
                before = {key: list(kinds) for key, kinds in self.results.items()}
                for case in cases:
                    key = case.instance.key
                    for number, tensor in enumerate(self._group(case)[0].outputs):
                        if (key, number) in places:
                            known = found.get((key, number), tensor.type.dtype)
                            found[key, number] = promote([known, tensor.type.dtype])
                for (key, number), dtype in found.items():
                    shape = self.results[key][number].shape
                    self.results[key][number] = TensorType(dtype, shape)
                if self.results == before:
                    break
        except LanguageError:
            return {}
        return found

    def _literals(self, case: Case) -> list[Literal | None]:
        """The literal that each result of a case is; None for another one."""
        group = self._group(case)[0]
        bodies = {statement.target: statement.body for statement in group.statements}
        outputs = group.outputs[: len(case.instance.definition.results)]
        found = (bodies.get(tensor.name) for tensor in outputs)
        return [body if isinstance(body, Literal) else None for body in found]

    def _guess_results(self, cases: Sequence[Case]) -> Case:
        """A case with possibly no calls: guesses result types that are a fixed point of it.

        Sizes are those that the results have if the results of its calls have unknown sizes.
        """
        last: LanguageError | None = None
        for case in cases:
            key, unknown = (
                case.instance.key,
                [c for c in case.calls if c.callee not in self.results],
            )
            if not all(call.several and call.callee == key for call in unknown):
                continue
            for dtype in (int64, float32, float64):
                ranks = [_rank_in(case, unknown[0], n) for n in range(len(unknown[0].targets))]
                kinds = [
                    TensorType(
                        dtype, tuple(Size.symbol(f"_result{n}.{axis}") for axis in range(rank))
                    )
                    for n, rank in enumerate(ranks)
                ]
                try:
                    self.results[key] = kinds
                    made = [t.type for t in self._group(case)[0].outputs[: len(kinds)]]
                    self.results[key] = [
                        TensorType(each.dtype, tuple(map(_known_size, each.shape))) for each in made
                    ]
                    found = [t.type for t in self._group(case)[0].outputs[: len(kinds)]]
                except LanguageError as error:
                    found, last = [], error
                if found and found == self.results[key]:
                    return case
            del self.results[key]
        if last is not None:
            raise last
        instance = cases[0].instance
        raise instance.error(
            instance.definition.position,
            "no case ends the recursion",
            "add a case that calls nothing",
        )

    def _merge(self, case: Case) -> bool:
        """Take the types of a case's results; returns whether a known one changed."""
        key, results = case.instance.key, case.instance.definition.results
        made = [t.type for t in self._group(case)[0].outputs[: len(results)]]
        known = self.results.get(key)
        if known is None:
            self.results[key] = made
            return True
        found = []
        adapts = [(key, number) in self.adapted for number in range(len(results))]
        literals = self._literals(case) if any(adapts) else []
        for number, (name, left, right) in enumerate(zip(results, known, made)):
            if left.shape != right.shape:
                raise case.instance.error(
                    case.instance.definition.position,
                    f"result '{name}' has the sizes ({_sizes_text(left)}) in one case and "
                    f"({_sizes_text(right)}) in another ({case.name})",
                )  # fmt: skip
            literal = adapts[number] and literals[number] is not None
            dtype = left.dtype if literal else _common(left.dtype, right.dtype)
            found.append(TensorType(dtype, left.shape))
        self.results[key] = found
        return found != known

    def _find_passed(self) -> None:
        """The types of the values that calls get, callers first."""
        sites = [(case, call) for case in self.cases for call in case.calls if call.passed]
        while sites:
            left = [site for site in sites if not self._take_passed(*site)]
            if len(left) == len(sites):
                case, call = sites[0]
                raise case.instance.error(
                    call.position, f"the arguments of '{call.callee[0]}' depend on its results",
                    "values that go down a structure depend on what is above",
                )  # fmt: skip
            sites = left
        every = [(case, call) for case in self.cases for call in case.calls]
        for case, call in every:
            for parameter, tensor in call.passed:
                made = self._passed_type(case, tensor)
                known = self.passed[call.callee, parameter]
                if made is not None and made.shape != known.shape:
                    raise case.instance.error(
                        call.position, f"'{parameter}' has the sizes ({_sizes_text(known)}) in one "
                        f"call and ({_sizes_text(made)}) here",
                    )  # fmt: skip

    def _take_passed(self, case: Case, call: Call) -> bool:
        """Find the types of the values of a call; returns whether they are known."""
        for parameter, tensor in call.passed:
            if (call.callee, parameter) not in self.passed:
                kind = self._passed_type(case, tensor)
                if kind is None:
                    return False
                declared = self.by_key[call.callee].parameter(parameter)
                dtype = TYPE_NAMES.get(declared.type)
                if dtype is not None:
                    kind = TensorType(DTYPES[dtype], kind.shape)
                self.passed[call.callee, parameter] = kind
        return True

    def _passed_type(self, case: Case, tensor: str) -> TensorType | None:
        """The type of a value of a case that does not depend on calls; None if it is not known."""
        _, names = needed_statements(case, tensor)
        for call in case.calls:
            if names.intersection(call.targets) and call.callee not in self.results:
                return None
        for each in case.instance.passed:
            if each.name in names and (case.instance.key, each.name) not in self.passed:
                return None
        return self._group(case, tensor)[0].outputs[0].type

    def _group(self, case: Case, tensor: str = "") -> Instantiated:
        """The comprehensions of a case for one call, or those of one of its tensors; the names of
        the arguments, and the result for each name of the case that is one."""
        called = {call.callee for call in case.calls}
        results = ((key, tuple(kinds)) for key, kinds in self.results.items() if key in called)
        unknown = self._sizes_of_results()
        passed = ((own, k) for own, k in self.passed.items() if own[0] == case.instance.key)
        known = case.name, tensor, frozenset(results), frozenset(unknown), frozenset(passed)
        if known not in self.groups:
            self.groups[known] = self._instantiate(case, tensor)
        return self.groups[known]

    def _sizes_of_results(self) -> set[str]:
        """The dims in the types of results so far."""
        shapes = (kind.shape for kinds in self.results.values() for kind in kinds)
        return {name for shape in shapes for size in shape for name in size.symbols}

    def _instantiate(self, case: Case, tensor: str) -> Instantiated:
        ranks = {
            key: [(kind.dtype.name, kind.rank) for kind in kinds]
            for key, kinds in self.results.items()
        }
        definition, names = definition_of(case, ranks, tensor)
        kinds = {name: self._field_type(case, name) for name in case.fields}
        box = self.sizes_box
        new = self._sizes_of_results() - set(box.names)
        box = box.also(*map(Dim, sorted(new)))
        for call in case.calls:
            count: tuple[Size, ...] = ()
            if call.several:
                count = (Size.symbol(call.several),)
                if call.several not in box.names:
                    box = box.also(Dim(call.several))
            for target, kind in zip(call.targets, self.results.get(call.callee, ())):
                kinds[target] = TensorType(kind.dtype, (*count, *kind.shape))
        for name in (*(site.target for site in case.sites), *case.nodes):
            kinds[name] = TensorType(int64, ())
        for parameter in case.instance.passed:
            if (case.instance.key, parameter.name) in self.passed:
                kinds[parameter.name] = self.passed[case.instance.key, parameter.name]
        for name, tensor in case.instance.tensors.items():
            kinds[name] = self.emitter.types[tensor]
        types = [kinds[names[parameter.name]] for parameter in definition.parameters]
        sizes = self._sizes_of_types(case, definition)
        more = tuple(Attribute(name, "size") for name in sizes)
        definition = replace(definition, attributes=(*definition.attributes, *more))
        given = {**case.instance.attributes, **sizes, **self._ranks()}
        self._check_counts(case, definition, box)
        group = instantiate(definition, types, given, box)
        source = f"{definition.file}:{definition.line}: {case.name}"
        group = replace(group, guards=division_guards(group, box, source))
        own = frozenset(call.several for call in case.calls)
        for guard in group.guards:
            if (guard.left.symbols | guard.right.symbols) & own:
                raise case.instance.error(
                    definition.position, f"{case.name}: a condition on the number of children",
                    guard.message,
                )  # fmt: skip
        outputs = (tensor.name for tensor in group.outputs)
        return group, names, dict(zip(definition.results, outputs))

    def _sizes_of_types(self, case: Case, definition: Definition) -> dict[str, Size]:
        """The sizes of fields that a case has not, of the structures that it is called for."""
        instance = case.instance
        own = {s for each in definition.parameters for s in sizes_of(each)}
        own |= {each.name for each in definition.attributes}
        found: dict[str, Size] = {}
        for place, source in zip(instance.places, instance.held):
            for kind in reachable_types(place.type, instance.types):
                for constructor in kind.constructors:
                    for each in constructor.fields:
                        if each.type in instance.types:
                            continue
                        held = self.fields[source, kind.name, constructor.name, each.name]
                        for term, size in zip(each.shape, self.emitter.types[held].shape[1:]):
                            if isinstance(term, Name) and term.name not in own:
                                found.setdefault(term.name, size)
        return found

    def _check_counts(self, case: Case, definition: Definition, box: Box) -> None:
        """Raise LanguageError for a size that counts structures which no call visits."""
        counts = {
            term.name
            for kind in case.instance.types.values()
            for constructor in kind.constructors for each in constructor.fields
            if each.type in case.instance.types
            for term in each.shape if isinstance(term, Name)
        } - set(box.names)  # fmt: skip
        for item in items(definition.statements):
            for term in walk(item.value) if isinstance(item, Assignment) else ():
                if isinstance(term, Name) and term.name in counts:
                    raise case.instance.error(
                        term.position, f"'{term.name}' counts structures that no call visits",
                        "call a definition for each of them in this case",
                    )  # fmt: skip

    def _ranks(self) -> dict[str, Any]:
        return {n: v for n, v in self.attributes.items() if n.startswith("...")}

    def _field_type(self, case: Case, name: str) -> TensorType:
        kind = self.emitter.types[self.field_input(case, name)]
        return TensorType(kind.dtype, kind.shape[1:])

    def field_input(self, case: Case, name: str) -> str:
        """The input of the program that a field of a case is a row of."""
        each = case.fields[name]
        source = case.instance.held[each.owner.parameter]
        return self.fields[source, each.owner.type, each.constructor, each.parameter.name]

    def _compute(self, number: int, case: Case, tensor: str = "") -> Computed:
        group, names, results = self._group(case, tensor)
        made = Computed(case, number, group, names, results)
        for position, call in enumerate(case.calls):
            for result, target in enumerate(call.targets):
                made.calls[target] = position, result
        return made

    def computed_before_calls(self, number: int, tensor: str) -> Computed:
        """The computation of an argument of a call.

        Comprehensions are computed one by one, but ordered statements all at once.
        """
        computed = self.computed[number]
        return self._compute(number, computed.case, tensor) if computed.group.steps else computed

    # ---- sizes -----------------------------------------------------------------------------------

    def free(self, name: str) -> str:
        """A name that no dim has."""
        taken = {*self.emitter.box.names, *self.dims.values()}
        return name if name not in taken else self.free(f"{name}_")

    def counts_of(self, source: int, kind: str) -> dict[str, Size]:
        """The number of nodes of each constructor of a type, in a structure of the program."""
        types = {each.name: each for each in list(self.ports.values())[source].types}
        found = {}
        for constructor in types[kind].constructors:
            found[constructor.name] = as_size(1)
            if constructor.fields:
                first = constructor.fields[0]
                size = self.emitter.types[first.offsets or first.values].shape[0]
                found[constructor.name] = size - 1 if first.offsets else size
        return found

    def total(self, instance: Instance) -> Size:
        """The number of calls of an instance."""
        numbers = [n for n, case in enumerate(self.cases) if case.instance is instance]
        return sum((self.calls(number) for number in numbers), as_size(0))

    def calls(self, case: int) -> Size:
        return Size.symbol(self.dims["calls", case])


def _known_size(size: Size) -> Size:
    """The only known size in an expression with unknown result sizes."""
    known = [name for name in sorted(size.symbols) if not name.startswith("_result")]
    if len(known) == len(size.symbols):
        return size
    return Size.symbol(known[0]) if len(known) == 1 else size


def _rank_in(case: Case, call: Call, result: int) -> int:
    """The rank of a result of a call, as the case reads it."""
    name, more = call.targets[result], 1 if call.several else 0
    for item in items(case.statements):
        terms = [item.value] if isinstance(item, Assignment) else []
        for term in chain.from_iterable(map(walk, terms)):
            if isinstance(term, CallTerm) and term.name == name:
                return len(term.arguments) - more
    return 0


def _sizes_text(kind: TensorType) -> str:
    return ", ".join(map(str, kind.shape))


def _common(left: DType, right: DType) -> DType:
    return left if left == right else promote([left, right])


def _cycles(instances: Sequence[Instance]) -> list[list[int]]:
    """The strongly connected components of calls, callees first."""
    numbers = {each.key: number for number, each in enumerate(instances)}
    calls = [
        sorted({numbers[call.callee] for case in each.cases for call in case.calls})
        for each in instances
    ]
    reach = [_reachable(number, calls) for number in range(len(instances))]
    left, found = list(range(len(instances))), []
    while left:
        for number in left:
            own = [n for n in left if n == number or (n in reach[number] and number in reach[n])]
            if not (reach[number] & set(left)) - set(own):
                found.append(own)
                left = [n for n in left if n not in own]
                break
    return found


def _reachable(first: int, calls: Sequence[Sequence[int]]) -> set[int]:
    found: set[int] = set()
    waiting = list(calls[first])
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += calls[number]
    return found
