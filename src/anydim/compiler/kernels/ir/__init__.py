"""Loop IR: the input of every target's renderer.

`functions/` expands the functions, conversions and element types that a target lacks into those it
supports, before rendering.

Expressions have a `Type` (element type and vector lanes; lanes 1 is a scalar). An `Op` names a
function of `lang/functions.py` or one of these, applied lane by lane: 'fma'; 'fast_min' and
'fast_max' (may lose a NaN); 'exp_nonpositive' (e^x for x at most 0); 'copysign' (of floats a, b:
a's magnitude with b's sign); 'dot_bytes' (of int32 a, b, c: c plus the products of a's four bytes,
unsigned, and b's, signed); 'dot_bfloat16' (of float32 a, b, c: c plus the products of the two
bfloat16 in the bits of a and of b, the upper ones first, see `targets/functions/dots.py`); 'ones'
(population count), 'trailing_zeros' (zeros below the lowest 1; all bits for 0) and 'leading_zeros'
(zeros above the highest 1), these three of unsigned integers; 'add_overflows' and 'mul_overflows'
(whether the result on int64 scalars does not fit). Integers that address memory are int64 scalars.
Buffers are pointer parameters, `Stack` arrays or `scratch`; offsets count elements of the type that
is loaded or stored, offsets of `Address` elements of the buffer. Names are unique within a
function. A masked-off lane accesses no memory.

Kernels access memory through buffers, for which a target may have address spaces. Host code
(`native/`) is the same IR with more: memory at an int64 address (`LoadAt`, `StoreAt`, aligned, may
alias any other), constant numbers (`Table`), functions with a result, indirect calls, and
synchronization between threads (`Atomic`, `Fence`, `Pause`).

Accelerators run kernels in work-groups: `group` work-items run the same function, identify
themselves by `Item`, synchronize at `Barrier`s and share the `Local` arrays of the kernel. Warps
multiply `Fragments` of matrices together, and async copies to local arrays overlap other work.
Processors with tiles (`Tiles`) multiply matrices of int8 or bfloat16 held in matrix registers.
"""

from anydim.compiler.kernels.ir.kernel import *  # noqa: F403
from anydim.compiler.kernels.ir.operators import *  # noqa: F403
from anydim.compiler.kernels.ir.steps import *  # noqa: F403
from anydim.compiler.kernels.ir.values import *  # noqa: F403
