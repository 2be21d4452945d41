"""A definition of the comprehension language -> graph, with every size variable a dim.

The graph has one node: the group of the definition, instantiated for its argument types.
`call_definition` adds such a node to another graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy

from anydim.base.dtypes import from_numpy
from anydim.base.errors import InputError, OptionError
from anydim.base.frozen import FrozenMapping
from anydim.base.text import quote_list, suggestion
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.lang.resolve.divisions import division_guards
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.resolve.ranks import ellipses_of, ranks_of
from anydim.lang.surface.sequences import is_sequence
from anydim.lang.surface.syntax import Definition, Name, Number, Parameter, Spread, walk
from anydim.lang.tree import Expr, Group, Read, Tensor, TensorType
from anydim.lang.tree.affine import rewrite
from anydim.lang.tree.renaming import rename_steps
from anydim.sizes import Box, Dim, Size, as_size

ArgumentKinds = tuple[tuple[str, tuple[bool, ...]], ...]


def kinds_of(
    definition: Definition, arrays: Sequence[numpy.ndarray], attributes: Mapping[str, Any]
) -> ArgumentKinds:
    """The properties of the arguments that determine their graph: dtypes, ranks, broadcast axes.

    An axis under an ellipsis broadcasts if its size is 1 and the same axis of another argument is
    not. Raises LanguageError for arguments whose ranks do not fit.
    """
    meeting: dict[tuple[str, int], set[int]] = {}
    terms = _axis_terms(definition, [array.ndim for array in arrays], attributes)
    for array, row in zip(arrays, terms):
        for size, term in zip(array.shape, row):
            if isinstance(term, tuple):
                meeting.setdefault(term, set()).add(size)
    return tuple(
        (
            array.dtype.name,
            tuple(
                isinstance(term, tuple) and size == 1 and len(meeting[term]) > 1
                for size, term in zip(array.shape, row)
            ),
        )
        for array, row in zip(arrays, terms)
    )


def keywords(definition: Definition) -> dict[str, str]:
    """Attributes by the keyword of a call.

    The rank of `...p` is keyword `p` unless another name is, or `**{"...p": 1}`.
    """
    found = {attribute.name: attribute.name for attribute in definition.attributes}
    taken = found.keys() | {parameter.name for parameter in definition.parameters}
    for name in ellipses_of(definition):
        found[f"...{name}"] = f"...{name}"
        if name not in taken:
            found[name] = f"...{name}"
    return found


def broadcasts(definition: Definition) -> bool:
    """Whether sizes of 1 change the graph, because an ellipsis may broadcast."""
    return bool(ellipses_of(definition))


def plain_graph(
    definition: Definition, types: Sequence[TensorType], box: Box, attributes: Mapping[str, Any]
) -> Graph:  # fmt: skip
    """The graph of a definition without structures and recursion, for argument types."""
    source = f"{definition.file}:{definition.line}: {definition.name}"
    group = _group(definition, types, attributes, box, source)
    inputs = tuple(tensor.name for tensor in group.inputs)
    outputs = tuple(tensor.name for tensor in group.outputs)
    tensors = (*group.inputs, *group.outputs)
    return Graph(
        name=definition.name,
        box=box,
        types=FrozenMapping({tensor.name: tensor.type for tensor in tensors}),
        inputs=inputs,
        outputs=outputs,
        nodes=(Node(FUSED, inputs, outputs, FrozenMapping({"group": group}), source),),
        guards=group.guards,
    )


def argument_types(
    definition: Definition,
    pattern: ArgumentKinds,
    attributes: Mapping[str, Any],
    fixed: Mapping[str, int] | None = None,
) -> tuple[list[TensorType], Box]:
    """The types of a definition's arguments of a pattern, and the box of its free sizes."""
    terms = _axis_terms(definition, [len(ones) for _, ones in pattern], attributes)
    types = [
        _type(definition, parameter, row, dtype, ones)
        for parameter, row, (dtype, ones) in zip(definition.parameters, terms, pattern)
    ]
    names = sorted({name for kind in types for size in kind.shape for name in size.symbols})
    types = [_with_sizes(kind, _sizes(definition, fixed or {}, names)) for kind in types]
    free = sorted({name for kind in types for size in kind.shape for name in size.symbols})
    return types, Box.of(*(Dim(name) for name in free))


def _group(
    definition: Definition, types: Sequence[TensorType], attributes: Mapping[str, Any], box: Box,
    source: str,
) -> Group:  # fmt: skip
    group = instantiate(definition, types, attributes, box)
    return replace(group, guards=division_guards(group, box, source))


def _sizes(
    definition: Definition, fixed: Mapping[str, int], names: Sequence[str]
) -> dict[str, Size]:
    """The fixed sizes as size expressions; OptionError for a name outside `names`."""
    for name, value in fixed.items():
        if name not in names:
            hint = suggestion(name, names) or f"its sizes are {quote_list(names)}"
            raise OptionError(f"{definition.name} has no size '{name}' to fix", hint)
        if type(value) is not int or value < 0:
            raise OptionError(f"fixed size '{name}' is {value!r}, expected a number from 0 up")
    return {name: as_size(value) for name, value in fixed.items()}


def _with_sizes(kind: TensorType, sizes: Mapping[str, Size]) -> TensorType:
    return TensorType(kind.dtype, tuple(size.substitute(sizes) for size in kind.shape))


# ---- a node in another graph -------------------------------------------------------------------


def call_definition(
    definition: Definition,
    names: Sequence[str],
    types: Sequence[TensorType],
    attributes: Mapping[str, Any],
    box: Box,
    result: Callable[[str, TensorType], str],
    source: str,
) -> tuple[Node, Group]:
    """The node of a call on values of a graph, and its group with the guards that the graph needs.

    `result` names each result in order. Raises LanguageError for arguments that do not fit.
    """
    if len(names) != len(definition.parameters):
        takes = quote_list(parameter.name for parameter in definition.parameters)
        raise definition.error(definition.position, f"takes {takes}; got {len(names)} arguments")
    if is_sequence(definition):
        raise definition.error(
            definition.position, "it is compiled to several nodes, and an operator of a model is "
            "one", "call it in a Builder, or write a definition without algorithms and recursion",
        )  # fmt: skip
    group = _group(definition, types, attributes, box, source)
    new = {tensor.name: name for tensor, name in zip(group.inputs, names)}
    new.update((t.name, result(t.name, t.type)) for t in group.outputs)
    new.update((t.name, f"{new[group.outputs[0].name]}/{t.name}") for t in group.temporaries)
    own = _rename_tensors(group, new)
    inputs = tuple(tensor.name for tensor in own.inputs)
    outputs = tuple(tensor.name for tensor in own.outputs)
    return Node(FUSED, inputs, outputs, FrozenMapping({"group": own}), source), own


def _rename_tensors(group: Group, names: Mapping[str, str]) -> Group:
    """Rename the tensors of a group; an input passed twice becomes one."""

    def change(expr: Expr) -> Expr | None:
        return replace(expr, tensor=names[expr.tensor]) if isinstance(expr, Read) else None

    def tensors(old: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple({names[t.name]: Tensor(names[t.name], t.type) for t in old}.values())

    return Group(
        inputs=tensors(group.inputs),
        outputs=tensors(group.outputs),
        statements=tuple(
            replace(s, target=names[s.target], body=rewrite(s.body, change))
            for s in group.statements
        ),
        temporaries=tensors(group.temporaries),
        guards=group.guards,
        steps=rename_steps(group.steps, names),
    )


# ---- argument types ----------------------------------------------------------------------------


def _axis_terms(
    definition: Definition, ranks: Sequence[int], attributes: Mapping[str, Any]
) -> list[list[Any]]:
    """Per axis of each argument its shape term, or (ellipsis, index from its right end)."""
    names = [parameter.name for parameter in definition.parameters]
    own = ranks_of(definition, dict(zip(names, ranks)), attributes).own
    rows = []
    for parameter in definition.parameters:
        row: list[Any] = []
        for term in parameter.shape:
            if isinstance(term, Spread):
                rank = own[parameter.name, term.name]
                row += [(term.name, rank - number) for number in range(rank)]
            else:
                row.append(term)
        rows.append(row)
    return rows


def _type(
    definition: Definition, parameter: Parameter, terms: list[Any], dtype: str,
    ones: tuple[bool, ...],
) -> TensorType:  # fmt: skip
    shape = tuple(
        as_size(1) if one else _size(definition, parameter, term, number)
        for number, (term, one) in enumerate(zip(terms, ones))
    )
    try:
        kind = numpy.dtype(dtype)
    except TypeError:  # record types and others that tensors do not have
        raise InputError(f"argument '{parameter.name}' has elements of type {dtype}") from None
    return TensorType(from_numpy(kind), shape)


def _size(definition: Definition, parameter: Parameter, term: Any, number: int) -> Size:
    if isinstance(term, tuple):
        ellipsis, position = term
        return Size.symbol(f"{ellipsis}.{position}")
    if isinstance(term, Number):
        return as_size(int(term.value))
    if isinstance(term, Name) and term.name not in {a.name for a in definition.attributes}:
        return Size.symbol(term.name)
    if any(isinstance(part, Name) for part in walk(term)):
        return Size.symbol(f"{parameter.name}.{number}")  # an expression: checked when bound
    raise definition.error(parameter.position, f"the shape of '{parameter.name}' is not understood")
