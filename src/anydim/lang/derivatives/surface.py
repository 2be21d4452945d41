"""Steps as a definition of the language: names, ranges, types and terms of the surface tree.

A `where` clause is left out where the language infers the same range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace

from anydim.base.dtypes import DType, float32
from anydim.base.records import dataclass
from anydim.lang.derivatives.algebra import simplify
from anydim.lang.derivatives.step_adjoints import range_end
from anydim.lang.functions import FUNCTIONS
from anydim.lang.resolve.scope import new_name
from anydim.lang.surface import syntax
from anydim.lang.surface.parser import parse_definition
from anydim.lang.surface.printer import COMBINES, print_definition
from anydim.lang.surface.syntax import RESERVED, TYPE_NAMES, Definition
from anydim.lang.tree import (
    Apply,
    Branch,
    Cast,
    Expr,
    Index,
    Literal,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import Affine, affine, reads, rewrite
from anydim.lang.tree.typing import identity
from anydim.sizes import Guard, Size
from anydim.sizes.atoms import Atom, Factor

_TYPES = {"float32": "float", "float64": "double", "float16": "half"}
_SUMS = ("add", "sub", "mul", "neg")
_TAKEN = frozenset([*RESERVED, *TYPE_NAMES, *FUNCTIONS, "type", "match"])


@dataclass(frozen=True)
class Signature:
    """The name, parameters and results of a definition, and relations of its sizes."""

    name: str
    parameters: tuple[Tensor, ...]
    results: tuple[str, ...]
    guards: tuple[Guard, ...] = ()


def definition_of(
    signature: Signature, steps: Sequence[OrderedStep], types: Mapping[str, TensorType]
) -> Definition:
    """The definition with these steps; its text is printed, and parsed again."""
    surface = _Surface(types, _declared_sizes(signature))
    surface.reserve(signature)
    made = Definition(
        name=surface.clean(signature.name),
        parameters=tuple(map(surface.parameter, signature.parameters)),
        attributes=(),
        results=tuple(map(surface.tensor, signature.results)),
        statements=surface.block(steps),
    )
    text = print_definition(made)
    return parse_definition(text, f"<{made.name}>")


def _declared_sizes(signature: Signature) -> dict[str, Size]:
    """Sizes of parameters that are expressions of other sizes, by their symbol."""
    found: dict[str, Size] = {}
    for guard in signature.guards:
        name = guard.right.atom
        if guard.relation == "==" and name is not None and re.search(r"\.\d+$", str(name)):
            found[str(name)] = guard.left
    return found


@dataclass
class _Surface:
    """Conversion from the tree; `names` maps tensors, indices and sizes to names of the text."""

    types: Mapping[str, TensorType]
    sizes: Mapping[str, Size]
    taken: set[str] = field(default_factory=lambda: set(_TAKEN))
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    counters: set[str] = field(default_factory=set)  # of loops

    # ---- names ---------------------------------------------------------------------------------

    def reserve(self, signature: Signature) -> None:
        """Give sizes, parameters and results their names first."""
        for tensor in signature.parameters:
            for size in tensor.type.shape:
                for symbol in sorted(size.substitute(self.sizes).symbols):
                    self._name("size", symbol)
        for name in (*(t.name for t in signature.parameters), *signature.results):
            self.tensor(name)

    def clean(self, name: str) -> str:
        """A name that the language accepts."""
        text = re.sub(r"\W", "_", name.replace(".", "_"))
        return text if re.match(r"[A-Za-z_]", text) else f"_{text}"

    def _name(self, kind: str, name: str) -> str:
        if (kind, name) not in self.names:
            self.names[kind, name] = new_name(self.clean(name), self.taken)
        return self.names[kind, name]

    def tensor(self, name: str) -> str:
        return self._name("tensor", name)

    # ---- parameters ----------------------------------------------------------------------------

    def parameter(self, tensor: Tensor) -> syntax.Parameter:
        name = tensor.type.dtype.name
        shape = tuple(self.size(size) for size in tensor.type.shape)
        return syntax.Parameter(self.tensor(tensor.name), _TYPES.get(name, name), shape)

    # ---- terms ---------------------------------------------------------------------------------

    def size(self, size: Size) -> syntax.Term:
        """A size as a term."""
        return _arithmetic(size.substitute(self.sizes), lambda symbol: self._name("size", symbol))

    def term(self, expr: Expr) -> syntax.Term:
        """An expression as a term."""
        if isinstance(expr, Literal):
            return _number(expr.value)
        if isinstance(expr, Index):
            return syntax.Name(self._name("index", expr.name))
        if isinstance(expr, SizeTerm):
            return self.size(expr.size)
        if isinstance(expr, Cast):
            return syntax.Convert(_type_name(expr.dtype), self.term(expr.argument))
        if isinstance(expr, Apply):
            form = affine(expr) if expr.function in _SUMS else None
            if form is not None:
                return self._sum(form)
            return syntax.Operation(expr.function, tuple(map(self.term, expr.arguments)))
        return self._read(expr)

    def _sum(self, form: Affine) -> syntax.Term:
        """An affine index: indices first, then sizes."""
        terms: list[tuple[int, list[syntax.Term]]] = []
        for name, coefficient in form.terms:
            index: syntax.Term = syntax.Name(self._name("index", name))
            number = coefficient.constant
            if number is not None:
                terms.append((number, [index]))
            else:
                terms.append((1, [self.size(coefficient), index]))
        for monomial, number in form.constant.substitute(self.sizes).monomials:
            factors = [self.size(Size.of_atom(atom)) for atom in monomial]
            terms.append((number, factors))
        return sum_terms(terms)

    def _read(self, read: Read) -> syntax.Term:
        name = self.tensor(read.tensor)
        default = None if read.default is None else self.term(read.default)
        indices = tuple(map(self.term, read.indices))
        if read.flat:
            return syntax.Flat(name, indices[0], default)
        if not indices:
            return syntax.Name(name)
        return syntax.CallTerm(name, indices, default)

    # ---- statements ----------------------------------------------------------------------------

    def block(self, steps: Iterable[OrderedStep]) -> tuple[syntax.Item, ...]:
        return tuple(self.item(step) for step in steps)

    def item(self, step: OrderedStep) -> syntax.Item:
        """A step as an item of a block."""
        if isinstance(step, Loop):
            self.counters.add(step.variable)
            variable = self._name("size", step.variable)
            start, stop = self.term(step.start), self.term(step.stop)
            return syntax.LoopBlock(
                variable, start, stop, _number(step.step), self.block(step.body)
            )
        if isinstance(step, Branch):
            then, otherwise = self.block(step.then), self.block(step.otherwise)
            if not then:
                condition = self.term(Apply("not", (step.condition,)))
                return syntax.BranchBlock(condition, otherwise)
            return syntax.BranchBlock(self.term(step.condition), then, otherwise)
        return self.assignment(step)

    def assignment(self, step: Statement | Write) -> syntax.Assignment:
        step = _as_accumulation(step)
        body, ranges = _ranges(step)
        target = self.tensor(step.target)
        indices = step.indices if isinstance(step, Write) else tuple(
            Index(axis.name) for axis in step.axes
        )  # fmt: skip
        fresh = bool(step.combine) if isinstance(step, Statement) else step.fresh
        where = []
        inferred = self._axes_with_inferred_range(step, body)
        for axis in (*step.axes, *step.reduced):
            low, high = ranges.get(axis.name, (None, None))
            if low is None and high is None and axis.name in inferred:
                continue
            name = self._name("index", axis.name)
            first = _number(0) if low is None else self.term(low)
            end = self.size(axis.extent) if high is None else self.term(high)
            where.append(syntax.Range(name, first, end))
        value = self._value(body, self.types[step.target].dtype)
        return syntax.Assignment(
            target, tuple(map(self.term, indices)), step.combine, fresh, value, tuple(where)
        )

    def _value(self, body: Expr, dtype: DType) -> syntax.Term:
        """The value of an assignment, in the element type of its target."""
        if isinstance(body, Literal) and dtype != float32:
            return syntax.Convert(_type_name(dtype), self.term(body))
        return self.term(body)

    def _axes_with_inferred_range(self, step: Statement | Write, body: Expr) -> set[str]:
        """The axes whose range the language infers: each read has them alone in a dimension.

        The size of a tensor of a loop is that of all iterations, unlike a range of one iteration.
        """
        found: dict[str, set[Size]] = {}
        barred: set[str] = set()
        exprs = (body, *(step.indices if isinstance(step, Write) else ()))
        for read in (read for expr in exprs for read in reads(expr)):
            shape = self.types[read.tensor].shape
            if read.flat:
                barred |= _index_names(read.indices[0])
                continue
            for index, size in zip(read.indices, shape):
                if isinstance(index, Index) and read.default is None:
                    found.setdefault(index.name, set()).add(size)
                elif read.default is None:
                    barred |= _index_names(index)
        extents = {axis.name: axis.extent for axis in (*step.axes, *step.reduced)}
        return {
            name for name, sizes in found.items()
            if name not in barred and sizes == {extents.get(name)}
            and self.counters.isdisjoint(extents[name].symbols)
        }  # fmt: skip


def _type_name(dtype: DType) -> str:
    return _TYPES.get(dtype.name, dtype.name)


def _as_accumulation(step: Statement | Write) -> Statement | Write:
    """`y(i) = y(i) * x` as `y(i) *= x`, from which the language infers no size of y."""
    if not isinstance(step, Write) or step.combine or step.fresh:
        return step
    body, own = step.body, Read(step.target, step.indices)
    if not isinstance(body, Apply) or body.function not in COMBINES or body.arguments[0] != own:
        return step
    value = body.arguments[1]
    if any(read.tensor == step.target for read in reads(value)):
        return step
    return replace(step, combine=body.function, body=value)


def _number(value: int | float | bool) -> syntax.Term:
    if not isinstance(value, bool) and (value < 0 or (value == 0 and str(value)[0] == "-")):
        return syntax.Operation("neg", (syntax.Number(-value),))
    return syntax.Number(value)


def _index_names(expr: Expr) -> set[str]:
    found: set[str] = set()

    def look(part: Expr) -> None:
        if isinstance(part, Index):
            found.add(part.name)

    rewrite(expr, look)
    return found


def _arithmetic(size: Size, name: Callable[[str], str]) -> syntax.Term:
    """A size as a term; `name` gives the name of a symbol."""

    def factor(atom: Factor) -> syntax.Term:
        if not isinstance(atom, Atom):
            return syntax.Name(name(atom))
        parts = [_arithmetic(argument, name) for argument in atom.arguments]
        made = parts[0]
        for part in parts[1:]:
            made = syntax.Operation(atom.function, (made, part))
        return made

    return sum_terms(
        (coefficient, [factor(atom) for atom in monomial])
        for monomial, coefficient in size.monomials
    )


def sum_terms(terms: Iterable[tuple[int, list[syntax.Term]]]) -> syntax.Term:
    """A sum of products of factors with a coefficient, positive terms first."""
    made: syntax.Term | None = None
    ordered = sorted(terms, key=lambda term: term[0] < 0)
    for coefficient, factors in ordered:
        part = _product(abs(coefficient), factors)
        if coefficient > 0:
            made = part if made is None else syntax.Operation("add", (made, part))
        elif made is None:
            made = syntax.Operation("neg", (part,))
        else:
            made = syntax.Operation("sub", (made, part))
    return _number(0) if made is None else made


def _product(coefficient: int, factors: list[syntax.Term]) -> syntax.Term:
    parts = ([_number(coefficient)] if coefficient != 1 or not factors else []) + factors
    made = parts[0]
    for part in parts[1:]:
        made = syntax.Operation("mul", (made, part))
    return made


def _ranges(
    step: Statement | Write,
) -> tuple[Expr, dict[str, tuple[Expr | None, Expr | None]]]:
    """The body, and the ends that data gives to indices, by index."""
    body = step.body
    if not (isinstance(body, Apply) and body.function == "select"):
        return body, {}
    condition, then, rest = body.arguments
    if not _is_identity(step, rest):
        return body, {}
    names = {axis.name for axis in (*step.axes, *step.reduced)}
    if isinstance(step, Statement):
        names = {axis.name for axis in step.reduced}
    ends: dict[str, tuple[Expr | None, Expr | None]] = {}
    kept: list[Expr] = []
    for part in _conjuncts(condition):
        end = range_end(part, names)
        if end is None or not reads(end[2]):
            kept.append(part)
            continue
        name, side, value = end
        low, high = ends.get(name, (None, None))
        value = simplify(value)
        ends[name] = (value, high) if side == "low" else (low, value)
    if not ends:
        return body, {}
    for part in kept[::-1]:
        then = Apply("select", (part, then, rest))
    return then, ends


def _is_identity(step: Statement | Write, value: Expr) -> bool:
    if not isinstance(value, Literal) or not step.combine:
        return False
    if step.combine == "add":
        return value.value == 0
    return value.dtype is not None and value == identity(step.combine, value.dtype)


def _conjuncts(condition: Expr) -> list[Expr]:
    if isinstance(condition, Apply) and condition.function == "and":
        return [part for argument in condition.arguments for part in _conjuncts(argument)]
    return [condition]
