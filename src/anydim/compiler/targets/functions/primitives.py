"""Primitive operations of targets; all others are expanded into them.

Every target has, elementwise, for vectors of any number of lanes and for scalars:

  - `FLOATS` of float32 and float64. Comparisons with NaN are false ('not_equal' true). 'min' and
    'max' return NaN if either is NaN; 'fast_min' and 'fast_max' return the second argument then:
    a < b ? a : b. 'fma' rounds once if the machine does, otherwise twice.
  - `INTEGERS` of integers and flags. Division by 0 returns 0, the minimum by -1 wraps; a shift by
    the width or more shifts all bits out. 'dot_bytes' is of int32, 'ones', 'trailing_zeros' and
    'leading_zeros' of unsigned integers, 'add_overflows' and 'mul_overflows' of int64.
  - 'select' of any element type, 'and', 'or', 'xor', 'not' of flags.
  - conversions between integers, including flags; from them to float32 and float64; between float32
    and float64; and from those two to integers for numbers in range (`Convert.fits`).
  - bit casts. A type with `dtype.format` or less than 8 bits is stored as the unsigned integer of
    its bits; only bit casts, moves and 'select' apply to it.

A `Primitives` record lists the additional operations of a target.
"""

from __future__ import annotations

from functools import cached_property

from anydim.base.dtypes import DTYPES, DType, bfloat16, boolean, float16, float32, float64
from anydim.base.records import dataclass

COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
LOGICAL = frozenset(("and", "or", "xor", "not"))
_TESTS = frozenset(("isnan", "isinf", "add_overflows", "mul_overflows"))
PREDICATES = COMPARISONS | LOGICAL | _TESTS  # functions whose results are flags
FLOATS = COMPARISONS | {
    "add", "sub", "mul", "div", "quotient", "fma", "neg", "abs", "sqrt", "floor", "ceil", "round",
    "trunc", "min", "max", "fast_min", "fast_max",
}  # fmt: skip
INTEGERS = COMPARISONS | {
    "add", "sub", "mul", "div", "quotient", "fmod", "floordiv", "mod", "fma", "neg", "abs", "min",
    "max", "fast_min", "fast_max", "bit_and", "bit_or", "bit_xor", "bit_not", "shift_left",
    "shift_right", "ones", "trailing_zeros", "leading_zeros", "add_overflows", "mul_overflows",
    "dot_bytes",
}  # fmt: skip
_COMPUTED = (float32, float64)


@dataclass(frozen=True)
class Primitives:
    """The operations of a target beyond the common ones.

    `float16`: it compares float16 and converts it to and from float32; `halves`: conversion only.
    `bfloat16`: it rounds float32 to it, subnormal numbers to zeros.
    `functions`: native functions of float32 and float64, possibly 'copysign' (size, sign).
    """

    float16: bool = False
    functions: frozenset[str] = frozenset()
    halves: bool = False
    bfloat16: bool = False

    def computes(self, function: str, dtype: DType) -> bool:
        """Whether the target has a function for an element type of its arguments."""
        return function in self._by_type[dtype.name]

    @cached_property
    def _by_type(self) -> dict[str, frozenset[str]]:
        return {dtype.name: self._functions(dtype) | {"select"} for dtype in DTYPES.values()}

    def _functions(self, dtype: DType) -> frozenset[str]:
        if dtype == boolean:
            return LOGICAL | INTEGERS
        if not dtype.is_float:
            return INTEGERS
        if dtype in _COMPUTED:
            return FLOATS | self.functions
        return COMPARISONS if dtype == float16 and self.float16 else frozenset()

    def converts(self, have: DType, wanted: DType, fits: bool) -> bool:
        """Whether the target has a conversion between two element types."""
        if have == wanted:
            return True
        if (have, wanted) == (float32, bfloat16):
            return self.bfloat16 and fits
        if have.stored or wanted.stored or have.format is not None or wanted.format is not None:
            return False
        if float16 in (have, wanted):
            return (self.float16 or self.halves) and float32 in (have, wanted)
        if wanted == boolean:
            return False
        return fits or not (have.is_float and wanted.is_integer)
