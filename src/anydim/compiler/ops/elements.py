"""TC texts of elementwise operators that depend on the types of their inputs."""

from __future__ import annotations

from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import definition, expect_inputs
from anydim.sizes import Box


def power(types: Types, attributes: Attributes, box: Box) -> Written:
    """a to the power b, in the type of a; integer to real powers are computed in the real type."""
    expect_inputs("pow", types, 2, 2)
    base, exponent = (kind.dtype for kind in types)
    if base == exponent:
        value = "pow(a(...i), b(...i))"
        parameters = ["T(...i) a", "T(...i) b"]
    else:
        parameters = ["T(...i) a", "U(...i) b"]
        work = "U" if exponent.is_float and not base.is_float else "T"
        value = f"pow(cast<{work}>(a(...i)), cast<{work}>(b(...i)))"
        value = value if work == "T" else f"cast<T>({value})"
    return Written(definition("pow", parameters, [f"y(...i) = {value}"]))
