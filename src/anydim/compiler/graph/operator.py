"""The operator record and the registry of operators.

An operator is a text in the comprehension language. Its size rule, semantics, lowering and tests
all derive from that text. Where the text depends on ranks or attributes (transpose by a
permutation, concat of n inputs), a function writes it. An operator that is not a comprehension
(sorting) is a `Routine`, which provides all of these itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.dtypes import DType, dtype_of
from anydim.base.errors import GraphError, InputError, InternalError, LanguageError
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.compiler.graph.attributes import check_attribute
from anydim.compiler.kernels.routines.arguments import expect_inputs
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.operator_names import register_callable
from anydim.lang.surface.parser import parse_definition
from anydim.lang.surface.syntax import Definition
from anydim.lang.tree import Group, Tensor, TensorType
from anydim.sizes import Box, Guard, Truth, prove

if TYPE_CHECKING:
    from anydim.compiler.kernels.routines.routine import Routine

Types = Sequence[TensorType]
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Written:
    """A text with the values of its attributes, and additional guards on the sizes."""

    text: str
    attributes: Mapping[str, Any] = field(default_factory=FrozenMapping)
    guards: tuple[Guard, ...] = ()


Writer = Callable[[Types, Attributes, Box], Written]


@dataclass(frozen=True)
class RoutineReference:
    """Reference to a `Routine`: its module in `kernels/routines/`, and its name there."""

    module: str
    name: str

    @property
    def routine(self) -> Routine:
        """The routine; its module is imported at this point."""
        module = import_module(f"anydim.compiler.kernels.routines.{self.module}")
        found: Routine = getattr(module, self.name)
        return found


@dataclass(frozen=True, eq=False)
class Operator:
    """A named operator of the library.

    `text` is its definition in the comprehension language, or a function that writes it for given
    input types and attributes (raises GraphError for arguments that do not fit), or a reference to
    a `Routine`. `attributes` are its attributes with their defaults; REQUIRED marks one without.
    `kind` is its family; `domain` is the interval of test data.
    """

    name: str
    text: str | Writer | RoutineReference
    kind: str
    doc: str = ""
    attributes: FrozenMapping[str, Any] = field(default_factory=FrozenMapping)
    domain: tuple[float, float] = (-3.0, 3.0)
    file: str = "<operator>"

    def check(self, given: Attributes) -> FrozenMapping[str, Any]:
        """Attributes as a caller gives them, with hashable values of the right kinds.

        Raises:
            GraphError: There is no such attribute, or it is of another kind.
        """
        self._expect_known(given)
        defaults = self.attributes
        return FrozenMapping(
            {
                key: check_attribute(self.name, key, defaults[key], value)
                for key, value in given.items()
            }
        )

    def _expect_known(self, attributes: Attributes) -> None:
        for name in attributes:
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "none"
                raise GraphError(
                    f"operator '{self.name}' has no attribute '{name}'", f"it has: {known}"
                )

    def complete(self, attributes: Attributes) -> FrozenMapping[str, Any]:
        """Fill in default attributes; raise GraphError for unknown or missing ones."""
        self._expect_known(attributes)
        full = {**self.attributes, **attributes}
        for name, value in full.items():
            if value is REQUIRED:
                raise GraphError(f"operator '{self.name}' needs its attribute '{name}'")
            if isinstance(self.attributes[name], float) and isinstance(value, int):
                full[name] = float(value)
            elif name in TYPES and not (value is None and self.attributes[name] is None):
                full[name] = self._type(value)
        return FrozenMapping(full)

    def _type(self, value: Any) -> DType:
        try:
            return dtype_of(value)
        except InputError as error:
            raise GraphError(f"operator '{self.name}': {error.problem}", error.hint) from None

    @property
    def routine(self) -> Routine | None:
        """The routine of an operator that is not a comprehension; None for the others."""
        return self.text.routine if isinstance(self.text, RoutineReference) else None

    def written(self, types: Types, attributes: Attributes, box: Box) -> Written:
        """The text for these types and complete attributes, with the values it declares."""
        if isinstance(self.text, str):
            return Written(self.text, attributes)
        if isinstance(self.text, RoutineReference):
            raise InternalError(f"operator '{self.name}' has no text")
        return self.text(types, attributes, box)

    def instantiate(self, types: Types, attributes: Attributes, box: Box | None) -> Group:
        """The comprehensions of this operator on inputs of these types (memoised).

        For a routine: only inputs x0, x1, ..., outputs y0, y1, ... and guards.
        """
        return _instantiate(self, tuple(types), self.complete(attributes), box)

    def infer(
        self, types: Types, attributes: Attributes, box: Box | None
    ) -> tuple[TensorType, ...]:
        """The types of the results."""
        group = self.instantiate(types, attributes, box)
        return tuple(tensor.type for tensor in group.outputs)


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()
TYPES = frozenset({"to", "dtype", "work"})  # attributes that are element types
OPERATORS: dict[str, Operator] = {}


def register(record: Operator) -> None:
    """Add a record to the registry; names are unique."""
    if record.name in OPERATORS:
        raise InternalError(f"operator '{record.name}' is defined twice")
    OPERATORS[record.name] = record
    register_callable(record)


def operator(name: str) -> Operator:
    """Look up the record of an operator; GraphError if there is none of that name."""
    record = OPERATORS.get(name)
    if record is None:
        raise GraphError(
            f"there is no operator '{name}'", "see anydim.compiler.ops for the library"
        )
    return record


@lru_cache(maxsize=4096)
def _definition(text: str, file: str, name: str) -> Definition:
    definition = parse_definition(text, file)
    if definition.name != name:
        raise InternalError(f"operator '{name}' is defined as '{definition.name}'")
    return definition


@lru_cache(maxsize=1 << 18)
def _instantiate(
    record: Operator, types: tuple[TensorType, ...], attributes: Attributes, box: Box | None
) -> Group:
    if record.routine is not None:
        return _bare(record, record.routine, types, attributes, box or Box())
    written = record.written(types, attributes, box or Box())
    guards = _open(record, written.guards, box or Box())
    definition = _definition(written.text, record.file, record.name)
    try:
        group = instantiate(definition, types, written.attributes, box)
    except LanguageError as error:
        given = ", ".join(map(str, types)) or "nothing"
        where = f"operator '{record.name}' on {given}"
        own = error.bare.removeprefix(f"{record.name}: ").replace("'...i': ", "")  # not users' text
        of_text = error.hint.startswith(("write ", "give an array of "))
        hint = "convert it with the operator 'cast'" if of_text else error.hint
        raise GraphError(f"{where}: {own or error.problem}", hint) from None
    return replace(group, guards=(*group.guards, *guards)) if guards else group


def _bare(
    record: Operator, routine: Routine, types: Types, attributes: Attributes, box: Box
) -> Group:
    expect_inputs(record.name, types, *routine.inputs)
    made = routine.infer(types, attributes, box)
    return Group(
        inputs=tuple(Tensor(f"x{number}", kind) for number, kind in enumerate(types)),
        outputs=tuple(Tensor(f"y{number}", kind) for number, kind in enumerate(made)),
        statements=(),
        guards=tuple(_open(record, routine.guards(types, attributes, box), box)),
    )


def _open(record: Operator, guards: tuple[Guard, ...], box: Box) -> list[Guard]:
    """The guards that the box does not prove; GraphError for one that it refutes."""
    kept = []
    for guard in guards:
        truth = prove(guard.left, guard.relation, guard.right, box)
        if truth is Truth.REFUTED:
            raise GraphError(
                f"operator '{record.name}': {guard.message}: "
                f"{guard.left} {guard.relation} {guard.right} does not hold"
            )
        if truth is Truth.UNKNOWN:
            kept.append(guard)
    return kept
