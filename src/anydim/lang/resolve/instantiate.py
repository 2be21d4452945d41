"""A definition and the types of its arguments -> a group of statements with ranges and types.

After: ranks are known, every axis has an extent, every conversion is a Cast, every Literal has a
dtype, index expressions are affine in normal form wherever they are affine, and every unguarded
read whose position sizes decide is proven in bounds or has a guard; an index that data decides, or
that no proof reaches, is checked (`tree/bounds_checks.py`); 16-bit floats are computed with in
float32 (`widening.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from anydim.base.errors import UserError
from anydim.lang.resolve.binding import Binding, bind
from anydim.lang.resolve.broadcast import broadcast
from anydim.lang.resolve.ordered import ordered
from anydim.lang.resolve.roles import needs_order
from anydim.lang.resolve.statement import expand_statement
from anydim.lang.resolve.widening import widened
from anydim.lang.surface.syntax import Assignment, Definition
from anydim.lang.tree import Group, Tensor, TensorType
from anydim.sizes import Box


def instantiate(
    definition: Definition,
    types: Sequence[TensorType],
    attributes: Mapping[str, Any] | None = None,
    box: Box | None = None,
) -> Group:
    """The group that a definition means for arguments of these types.

    `attributes` gives values to declared attributes, and to "...p" the rank of an ellipsis.
    Raises LanguageError where arguments do not fit or a read is out of bounds.
    """
    return _instantiate({}, definition, types, attributes or {}, box or Box.of())


def _instantiate(
    made: dict[Any, Group | UserError],
    definition: Definition,
    types: Sequence[TensorType],
    attributes: Mapping[str, Any],
    box: Box,
) -> Group:
    """As `instantiate`; `made` keeps the groups of callees, however often they are called."""
    binding = bind(definition, types, attributes, box)
    broadcast(binding)
    if needs_order(definition, binding):
        return widened(ordered(binding, tuple(types), partial(_instantiate, made), made))
    return widened(_unordered(binding, types))


def _unordered(binding: Binding, types: Sequence[TensorType]) -> Group:
    """The group of a definition that assigns each tensor once, and wholly."""
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
