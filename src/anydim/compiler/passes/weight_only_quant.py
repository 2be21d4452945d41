"""Weight-only quantisation: products read constant weights of few bits without dequantising them.

    w(k,n) = float(q(n,k)) * s(n, k // block)
    y(m,n) +=! a(m,k) * w(k,n)                    becomes
    y(m,n) +=! a(m,k) * (float(q(n,k)) * s(n, k // block))

so that `simplify` does not fold the weights to floats: four or eight times the bytes to read.

After: no matrix product with a kernel for it on this machine reads dequantised weights that the
model stores in 4 or 8 bits without a zero point.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.dtypes import float32, int4, int8
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.template import Template, first_match
from anydim.compiler.passes.flow import Line, group_of, inputs_of, is_product, live, pack, unpack
from anydim.compiler.passes.integers import find_dequantisation
from anydim.lang.tree import Apply, Cast, Expr, Read, Statement, TensorType
from anydim.lang.tree.affine import reads


@dataclass(frozen=True)
class Narrow:
    """Inline the dequantisation of weights into the products that read them."""

    machine: Machine
    templates: tuple[Template, ...]

    def run(self, graph: Graph) -> Graph:
        bodies: dict[str, Statement] = {}
        fixed = set(graph.constants)
        types, lines = dict(graph.types), []
        for line in unpack(graph):
            made = self._read_narrow(line, bodies, types, fixed, graph)
            if not made.statement.combine:
                bodies[made.target] = made.statement
            if fixed.issuperset(inputs_of(made.statement)):
                fixed.add(made.target)
            lines.append(made)
        return pack(graph, live(lines, graph.outputs), graph.types)

    def _read_narrow(
        self, line: Line, bodies: dict[str, Statement], types: dict[str, TensorType],
        fixed: set[str], graph: Graph,
    ) -> Line:  # fmt: skip
        """The line, reading quantised weights if a kernel supports that."""
        statement = line.statement
        if not is_product(statement) or graph.types[line.target].dtype != float32:
            return line
        assert isinstance(statement.body, Apply)
        for number, factor in enumerate(statement.body.arguments):
            weights = _weights(factor, bodies, types, graph)
            if weights is None or not fixed.issuperset(r.tensor for r in reads(weights)):
                continue
            other = statement.body.arguments[1 - number]
            new = statement.with_body(Apply("mul", (other, weights)))
            group = group_of([new], graph.types, [new.target])
            found = first_match(self.templates, group, graph.box, self.machine, frozenset(fixed))
            if found is not None and found[0].reads_codes:
                return replace(line, statement=new)
        return line


def _weights(
    factor: Expr, bodies: dict[str, Statement], types: dict[str, TensorType], graph: Graph
) -> Expr | None:
    """Match a factor float32(weights) * scale; else None."""
    found = find_dequantisation(factor, bodies, types)
    if found is None or not isinstance(found.scale, Read):
        return None
    whole = found.whole
    if isinstance(whole, Apply) and _are_zeros(whole.arguments[1], graph):
        whole = whole.arguments[0]
    held = whole.argument if isinstance(whole, Cast) else None
    if not isinstance(held, Read) or types[held.tensor].dtype not in (int4, int8):
        return None
    return Apply("mul", (Cast(float32, held), found.scale))


def _are_zeros(points: Expr, graph: Graph) -> bool:
    """Whether zero points are constant 0, as in symmetric quantisation."""
    found = [graph.constants.get(read.tensor) for read in reads(points)]
    return all(constant is not None and constant.are("zero") for constant in found)
