"""Loop IR: what code is made of. A target renders it, nothing else.

`functions/` makes the functions, conversions and element types that a target lacks of those that
it has, before it renders.

Expressions have a `Type` (element type and vector lanes; lanes 1 is a scalar). Functions named in
`Op` are those of `lang/functions.py` plus 'fma', 'fast_min', 'fast_max' (which may lose a NaN),
'exp_nonpositive' (e^x for x at most 0),
'copysign' (of floats a, b: a's magnitude with b's sign),
'dot_bytes' (of int32 a, b, c: c plus the products of a's four bytes, unsigned, and b's, signed),
'ones' (how many bits are 1), 'trailing_zeros' (bits of 0 below the lowest 1; all, of 0) and
'leading_zeros' (above the highest 1), these three of unsigned integers, and 'add_overflows' and
'mul_overflows' (whether what int64 scalars make does not fit), applied lane by lane. Integers that
address memory are int64 scalars. Buffers are pointer parameters, `Stack` arrays or `scratch`;
offsets count elements of the type that is loaded or stored, those of `Address` elements of the
buffer. Names are unique within a function. A masked-off lane touches no memory.

Kernels know memory by buffers, which a target may tell apart. Host code (`native/`) is the same IR
with more: memory at an address that is an int64 like any other (`LoadAt`, `StoreAt`, aligned, at
liberty to be any other), functions with a result, calls through an address, and steps between
threads (`Atomic`, `Fence`, `Pause`).

Accelerators run kernels of groups: `group` items run the same function together, tell each other
apart by `Item`, meet at `Barrier`s and share the `Local` arrays of the kernel. Warps of them
multiply `Fragments` of matrices together, and copies to local arrays may go on beside other work.
Processors with tiles (`Tiles`) multiply matrices of bytes that they hold as a whole.
"""

from anydim.kernels.ir.kernel import *  # noqa: F403
from anydim.kernels.ir.operators import *  # noqa: F403
from anydim.kernels.ir.steps import *  # noqa: F403
from anydim.kernels.ir.values import *  # noqa: F403
