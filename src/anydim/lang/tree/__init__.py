"""The tree of dense computation, and analyses and rewrites of it.

Records of scalar expressions and comprehensions, rewrites, and queries. Later stages import the
records of `nodes.py` from here.
"""

from anydim.lang.tree.nodes import (
    Apply,
    Axis,
    Branch,
    Cast,
    Expr,
    Group,
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

__all__ = [
    "Apply",
    "Axis",
    "Branch",
    "Cast",
    "Expr",
    "Group",
    "Index",
    "Literal",
    "Loop",
    "OrderedStep",
    "Read",
    "SizeTerm",
    "Statement",
    "Tensor",
    "TensorType",
    "Write",
]
