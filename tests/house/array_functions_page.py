"""Which names of the Python array API standard values of a graph have, as a page.

python -m tests.house.array_functions_page docs/array-functions.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from anydim.compiler.frontends.array_functions import FOURIER, FUNCTIONS
from anydim.compiler.frontends.elementwise import UFUNCS
from anydim.compiler.frontends.values import Value

STANDARD = "2024.12"
SECTIONS = {
    "Operators": """
        __abs__ __add__ __and__ __bool__ __complex__ __eq__ __float__ __floordiv__ __ge__
        __getitem__ __gt__ __index__ __int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__
        __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __rshift__ __setitem__ __sub__ __truediv__
        __xor__""",
    "Attributes and methods": "T device dtype mT ndim shape size to_device",
    "Elementwise functions": """
        abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert
        bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos
        cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite
        isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not
        logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow
        real reciprocal remainder round sign signbit sin sinh sqrt square subtract tan tanh
        trunc""",
    "Creation": """
        arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones
        ones_like tril triu zeros zeros_like""",
    "Types": "astype can_cast finfo iinfo isdtype result_type",
    "Indexing and searching": """
        argmax argmin count_nonzero nonzero searchsorted take take_along_axis where""",
    "Linear algebra": """
        linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eigh linalg.eigvalsh
        linalg.inv linalg.matmul linalg.matrix_norm linalg.matrix_power linalg.matrix_rank
        linalg.matrix_transpose linalg.outer linalg.pinv linalg.qr linalg.slogdet linalg.solve
        linalg.svd linalg.svdvals linalg.tensordot linalg.trace linalg.vecdot linalg.vector_norm
        matmul matrix_transpose tensordot vecdot""",
    "Manipulation": """
        broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape
        roll squeeze stack tile unstack""",
    "Sets and sorting": "argsort sort unique_all unique_counts unique_inverse unique_values",
    "Statistics and tests": """
        all any cumulative_prod cumulative_sum diff max mean min prod std sum var""",
    "Fourier transforms": """
        fft.fft fft.fftfreq fft.fftn fft.fftshift fft.hfft fft.ifft fft.ifftn fft.ifftshift
        fft.ihfft fft.irfft fft.irfftn fft.rfft fft.rfftfreq fft.rfftn""",
}
UFUNC_NAMES = {
    "abs": "absolute", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
    "atan": "arctan", "atan2": "arctan2", "atanh": "arctanh", "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift",
    "conj": "conjugate", "pow": "power",
}  # fmt: skip
ARRAYS = {
    "arange",
    "asarray",
    "can_cast",
    "empty",
    "eye",
    "finfo",
    "from_dlpack",
    "full",
    "iinfo",
    "linspace",
    "ones",
    "zeros",
}  # fmt: skip  of arrays and types, which numpy computes itself
INSTEAD = {
    "__bool__": "`numpy.where`, `g.branch`", "__int__": "as a size: `g.find(x, 'count')`",
    "__setitem__": "`numpy.where`, `g.put`, `g.scatter_elements`",
    "device": "`with g.on(device):`", "to_device": "`with g.on(device):`",
    **FOURIER,
}  # fmt: skip
INTRODUCTION = """
Values of an `anydim.Builder` take Python's operators, and numpy's functions that are called with
a value add nodes to its graph: `numpy.where(x == 0, 1, x)`, `weights @ x`, `x.sum(axis=1)`. The
same expression of arrays gives the same elements in the same types:

- Types are promoted as by numpy 2: float32 and int64 give float64, a Python number takes the type
  of the value, and numpy's scalars and arrays have their own. For x of float32, `x / np.sqrt(64)`
  is float64 and `x / math.sqrt(64)` float32. bfloat16 next to a Python float stays bfloat16.
- `/` of integers is true division. The functions of the builder (`g.add`, `g.div`) convert
  nothing: their operands have one type, and `g.div` of integers truncates.
- A size expression is an integer: `x.sum() / n`. numpy's elementwise functions take no sizes:
  instead of `numpy.maximum(x, n)`, write `x.clip(n)` or `numpy.maximum(x, numpy.full_like(x, n))`.
- `==` and `!=` compare elements. `is` finds the same value, and a dict keeps values by identity.
  `v in values` and `values.index(v)` of a list compare elements, an error: write
  `any(v is w for w in values)`.
- `numpy.roll` takes integers and sizes as shifts. A subscript has one array beside slices, and no
  integer: `x[0][i]` instead of `x[0, i]`.
- `x.dtype` is a type of anydim: `x.dtype == anydim.float32`.
- Shapes broadcast as in numpy. Sizes that only a call knows are checked by the call.
- `if x > 0`, `float(x)` and iteration over an axis of free size are errors that say what to write
  instead.
- Where numpy refuses elements (integers to a negative power, a singular matrix), a call does not.

Other functions of numpy raise an error.
"""


def names() -> list[str]:
    """All names of the standard."""
    return [name for text in SECTIONS.values() for name in text.split()]


def is_available(name: str) -> bool:
    """Whether values of a graph have a function, method or operator of the standard."""
    if name in INSTEAD or name in ("__complex__", "__float__", "__index__"):
        return False
    own = UFUNC_NAMES.get(name, name)
    return name in ARRAYS or own in FUNCTIONS or own in UFUNCS or hasattr(Value, name)


def _missing(name: str) -> str:
    return f"`{name}` ({INSTEAD[name]})" if name in INSTEAD else f"`{name}`"


def page() -> str:
    """The text of the page."""
    lines = [
        "# numpy in graphs",
        "",
        "Made by `python -m tests.house.array_functions_page docs/array-functions.md`; a test",
        "compares.",
        "",
        *INTRODUCTION.strip().split("\n"),
        "",
        f"Names of the [array API standard](https://data-apis.org/array-api/) {STANDARD}:",
        "",
    ]
    for title, text in SECTIONS.items():
        available = [f"`{name}`" for name in text.split() if is_available(name)]
        missing = [name for name in text.split() if not is_available(name)]
        lines += [f"## {title}", ""]
        lines += [f"Available: {', '.join(available)}.", ""] if available else []
        if missing:
            said = ", ".join(_missing(name) for name in missing)
            lines += [f"Not available: {said}.", ""]
    more = sorted(({*FUNCTIONS} | UFUNCS) - {UFUNC_NAMES.get(name, name) for name in names()})
    lines += ["## More of numpy", "", ", ".join(f"`{name}`" for name in more) + ".", ""]
    methods = [name for name in vars(Value) if name[0] != "_"]
    lines += ["## Methods and attributes", ""]
    lines += [", ".join(f"`x.{name}`" for name in sorted(methods)) + "."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
