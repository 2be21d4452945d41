"""Instantiation: a definition and argument types -> a group of statements with ranges and types.

After: ranks are known, every axis has an extent, every conversion is a Cast, every Literal has a
dtype, index expressions are affine in normal form wherever they are affine, and every unguarded
read at a size-dependent position is proved in bounds or has a guard; an index that is
data-dependent, or unproved, is checked (`tree/bounds_checks.py`); 16-bit floats are computed in
float32 (`widening.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from anydim.base.errors import LanguageError, UserError
from anydim.lang.resolve.binding import Binding, bind
from anydim.lang.resolve.broadcast import broadcast
from anydim.lang.resolve.ordered import order_definition
from anydim.lang.resolve.roles import needs_order
from anydim.lang.resolve.scope import new_name
from anydim.lang.resolve.statement import expand_statement
from anydim.lang.resolve.widening import widen_group
from anydim.lang.surface.syntax import Assignment, Definition, Name, Parameter, Spread
from anydim.lang.tree import Group, Tensor, TensorType
from anydim.sizes import Box, Dim, Size


def instantiate(
    definition: Definition,
    types: Sequence[TensorType],
    attributes: Mapping[str, Any] | None = None,
    box: Box | None = None,
) -> Group:
    """Instantiate a definition for arguments of these types.

    `attributes` gives values to declared attributes, and to "...p" the rank of an ellipsis.
    Raises LanguageError where arguments do not fit or a read is out of bounds. A constant size
    raises no error that the definition would not raise with that size free: calls that reach the
    read out of bounds are rejected instead.
    """
    attributes, box = attributes or {}, box or Box.of()
    try:
        return _instantiate({}, False, definition, types, attributes, box)
    except LanguageError:
        free, wider = _with_free_sizes(definition, types, box)
        if wider is box or not _is_valid(definition, free, attributes, wider):
            raise
    return _instantiate({}, True, definition, types, attributes, box)


def _with_free_sizes(
    definition: Definition, types: Sequence[TensorType], box: Box
) -> tuple[list[TensorType], Box]:
    """Replace each constant size variable by a dim; returns the types and the box with the dims."""
    taken, dims = set(box.names), dict[str, Dim]()
    found = []
    for parameter, kind in zip(definition.parameters, types):
        shape = list(kind.shape)
        for axis, name in _named_axes(parameter, len(shape)):
            if shape[axis].constant is not None:
                if name not in dims:
                    dims[name] = Dim(new_name(name, taken))
                shape[axis] = Size.symbol(dims[name].name)
        found.append(TensorType(kind.dtype, tuple(shape)))
    wider = Box.of(*box.dims, *dims.values(), constraints=box.constraints) if dims else box
    return found, wider


def _named_axes(parameter: Parameter, rank: int) -> Iterator[tuple[int, str]]:
    """Axes of a parameter that are size variables, except those between two ellipses."""
    terms = parameter.shape
    spreads = [number for number, term in enumerate(terms) if isinstance(term, Spread)]
    for number, term in enumerate(terms):
        if isinstance(term, Name):
            before = not spreads or number < spreads[0]
            axis = number if before else rank - len(terms) + number
            if (before or number > spreads[-1]) and 0 <= axis < rank:
                yield axis, term.name


def _is_valid(
    definition: Definition, types: Sequence[TensorType], attributes: Mapping[str, Any], box: Box
) -> bool:
    try:
        _instantiate({}, False, definition, types, attributes, box)
    except UserError:
        return False
    return True


def _instantiate(
    made: dict[Any, Group | UserError],
    by_call: bool,
    definition: Definition,
    types: Sequence[TensorType],
    attributes: Mapping[str, Any],
    box: Box,
) -> Group:
    """As `instantiate`; `made` caches the groups of callees."""
    binding = bind(definition, types, attributes, box, by_call)
    broadcast(binding)
    if needs_order(definition, binding):
        callees = partial(_instantiate, made, by_call)
        return widen_group(order_definition(binding, tuple(types), callees, made))
    return widen_group(_group_without_order(binding, types))


def _group_without_order(binding: Binding, types: Sequence[TensorType]) -> Group:
    """Group of a definition that assigns each tensor once, as a whole."""
    definition = binding.definition
    tensors = dict(binding.tensors)
    statements = []
    for assignment in definition.statements:
        assert isinstance(assignment, Assignment)
        statement, dtype = expand_statement(assignment, binding, tensors)
        tensors[statement.target] = TensorType(dtype, statement.shape)
        statements.append(statement)

    def listed(names: Sequence[str]) -> tuple[Tensor, ...]:
        return tuple(Tensor(name, tensors[name]) for name in names)

    hidden = [s.target for s in statements if s.target not in definition.results]
    return Group(
        inputs=tuple(Tensor(p.name, kind) for p, kind in zip(definition.parameters, types)),
        outputs=listed(definition.results),
        statements=tuple(statements),
        temporaries=listed(hidden),
        guards=tuple(binding.guards),
    )
