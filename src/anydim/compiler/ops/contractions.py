"""TC texts of matmul, gemm and einsum."""

from __future__ import annotations

import re

from anydim.base.errors import GraphError
from anydim.base.records import dataclass
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    aligned,
    definition,
    expect_inputs,
    expect_rank,
    parameter,
    read,
    target,
    upper_names,
)
from anydim.lang.surface.syntax import RESERVED
from anydim.sizes import Box, as_size


def matmul(types: Types, attributes: Attributes, box: Box) -> Written:
    """Matrix product as in numpy: leading axes broadcast, a vector is a row or a column."""
    expect_inputs("matmul", types, 2, 2)
    left, right = (kind.rank for kind in types)
    if not left or not right:
        raise GraphError("operator 'matmul' does not take scalars", "use 'mul'")
    a = (["...p"] if left > 2 else []) + (["m"] if left > 1 else []) + ["k"]
    b = (["...p"] if right > 2 else []) + ["k"] + (["n"] if right > 1 else [])
    y = (["...p"] if max(left, right) > 2 else []) + [i for i in ("m", "n") if i in a + b]
    parameters = [parameter(name, upper_names(indices)) for name, indices in (("a", a), ("b", b))]
    body = f"{target('y', y)} +=! {read('a', a)} * {read('b', b)}"
    return Written(definition("matmul", parameters, [body]))


def gemm(types: Types, attributes: Attributes, box: Box) -> Written:
    """alpha * a * b + beta * c; a and b optionally transposed, c broadcast."""
    expect_inputs("gemm", types, 2, 3)
    for what, kind in zip("ab", types):
        expect_rank("gemm", kind, 2, what)
    a = ["k", "m"] if attributes["transpose_a"] else ["m", "k"]
    b = ["n", "k"] if attributes["transpose_b"] else ["k", "n"]
    parameters = [parameter("a", upper_names(a)), parameter("b", upper_names(b))]
    product = f"{read('a', a)} * {read('b', b)}"
    scale = "" if attributes["alpha"] == 1 else "alpha * "
    declared = ["float alpha"] if scale else []
    if len(types) == 2 or attributes["beta"] == 0:
        parameters += [parameter("c", [f"C{a}" for a in range(kind.rank)]) for kind in types[2:]]
        statements = [f"t(m,n) +=! {product}", "y(m,n) = alpha * t(m,n)"]
        if not scale:
            statements = [f"y(m,n) +=! {product}"]
        values = {"alpha": attributes["alpha"]} if scale else {}
        return Written(definition("gemm", parameters, statements, declared), values)
    if types[2].rank > 2:
        raise GraphError(f"operator 'gemm': c is {types[2]}, expected at most 2 axes")
    c_sizes = ["M", "N"][2 - types[2].rank :]
    c_sizes = ["1" if s.constant == 1 else n for s, n in zip(types[2].shape, c_sizes)]
    parameters.append(parameter("c", c_sizes))
    unknown = as_size("m"), as_size("n")
    added = read("c", aligned(types[2], unknown, ["m", "n"]))
    if attributes["beta"] != 1:
        added = f"beta * {added}"
        declared.append("float beta")
    statements = [f"t(m,n) +=! {product}", f"y(m,n) = {scale}t(m,n) + {added}"]
    values = {name.split()[1]: attributes[name.split()[1]] for name in declared}
    return Written(definition("gemm", parameters, statements, declared), values)


_TERM = re.compile(r"([A-Za-z]*)(\.\.\.)?([A-Za-z]*)")


@dataclass(frozen=True)
class _Equation:
    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]


def einsum(types: Types, attributes: Attributes, box: Box) -> Written:
    """Sum of products in Einstein notation, e.g. 'bij,bjk->bik'; '...' stands for more axes."""
    equation = _equation(attributes["equation"], types)
    parameters = []
    factors = []
    for number, term in enumerate(equation.inputs):
        sizes = [label if label == "..." else f"N{label}" for label in term]
        parameters.append(parameter(f"x{number}", [s.replace("...", "...p") for s in sizes]))
        factors.append(read(f"x{number}", _indices(term)))
    summed = {label for term in equation.inputs for label in term} - set(equation.output)
    combine = "+=!" if summed else "="
    body = f"{target('y', _indices(equation.output))} {combine} {' * '.join(factors)}"
    return Written(definition("einsum", parameters, [body]))


def _indices(term: tuple[str, ...]) -> list[str]:
    return ["...p" if label == "..." else _index(label) for label in term]


def _index(label: str) -> str:
    """A name for the index of a letter; 'in' and 'if' are keywords of the language."""
    name = f"i{label}"
    return f"i_{label}" if name in RESERVED else name


def _equation(text: object, types: Types) -> _Equation:
    def fail(problem: str) -> GraphError:
        return GraphError(f"operator 'einsum', equation {text!r}: {problem}")

    if not isinstance(text, str) or len(text) > 1000:
        raise fail("expected a text such as 'ij,jk->ik'")
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(types):
        raise fail(f"it has {len(terms)} terms for {len(types)} inputs")
    inputs = []
    for term, kind in zip(terms, types):
        labels = _labels(term)
        if labels is None:
            raise fail(f"'{term}' is not a sequence of letters with at most one '...'")
        if len(labels) - 1 > kind.rank or ("..." not in labels and len(labels) != kind.rank):
            raise fail(f"'{term}' does not fit {kind}")
        if "..." in labels and len(labels) - 1 == kind.rank:
            labels = tuple(label for label in labels if label != "...")
        inputs.append(labels)
    seen = [label for labels in inputs for label in labels]
    if arrow:
        output = _labels(right)
        if output is None or len(set(output)) != len(output):
            raise fail(f"its result '{right}' is not a sequence of distinct letters")
        output = tuple(label for label in output if label != "..." or "..." in seen)
        unknown = [label for label in output if label not in seen]
        if unknown:
            raise fail(f"its result names '{unknown[0]}', which is in no input")
        if "..." in seen and "..." not in output:
            raise fail("its result leaves out '...'")
    else:
        once = sorted(label for label in set(seen) if seen.count(label) == 1 and label != "...")
        output = (*(["..."] if "..." in seen else []), *once)
    return _Equation(tuple(inputs), tuple(output))


def _labels(term: str) -> tuple[str, ...] | None:
    found = _TERM.fullmatch(term)
    if found is None:
        return None
    before, dots, after = found.groups()
    return (*before, *(["..."] if dots else []), *after)
