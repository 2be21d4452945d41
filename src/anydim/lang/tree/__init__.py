"""The tree of dense computation, and what is read off it or made of it.

In come scalar expressions and comprehensions; out go the same, rewritten, and facts about them. All
later rooms import the records of `nodes.py` from here.
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
