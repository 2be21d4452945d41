"""TC texts of quantised operators: saturating casts, scales and zero points, integer products.

A quantised number q represents (q - zero) * scale. Scales and zero points are scalars, or one per
index along `axis`, or, with `block`, one per `block` indices along it.
"""

from __future__ import annotations

from anydim.base.dtypes import DType, float32, float64
from anydim.base.errors import GraphError
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.windows import slide
from anydim.compiler.ops.writing import (
    axis_of,
    declared,
    definition,
    expect_inputs,
    expect_rank,
    numbered,
    parameter,
    read,
    target,
    upper_names,
)
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Guard, ceil_div

# ---- casts -------------------------------------------------------------------------------------


def cast_saturated(types: Types, attributes: Attributes, box: Box) -> Written:
    """x as a narrow float; values out of range saturate to the largest number of their sign."""
    expect_inputs("cast_saturated", types, 1, 1)
    to = attributes["to"]
    statement = f"y(...i) = cast<to>({_limited('cast<work>(x(...i))', to)})"
    text = definition("cast_saturated", ["T(...i) x"], [statement], ["type to", "type work"])
    work = float64 if types[0].dtype == float64 else float32
    return Written(text, {"to": to, "work": work})


def _limited(value: str, to: DType) -> str:
    """Clamp an expression to the finite numbers of a narrow float."""
    largest = largest_of(to)
    return f"min(max({value}, {-largest!r}), {largest!r})"


def largest_of(dtype: DType) -> float:
    """Largest finite number of a narrow float."""
    form = dtype.format
    if form is None:
        raise GraphError(f"{dtype} is not a narrow float")
    exponent, fraction = divmod(form.largest, 1 << form.fraction)
    return (1.0 + fraction / (1 << form.fraction)) * 2.0 ** (exponent - form.bias)


_UP = {
    "up": "f(...i) > 0",
    "nearest": "f(...i) > 4194304 || (f(...i) == 4194304 && e(...i) > 0)",
}  # condition on the 23 fraction bits f of x for rounding the exponent up


def cast_exponent(types: Types, attributes: Attributes, box: Box) -> Written:
    """Magnitude of x as a power of two, float8_e8m0fnu.

    `rounding` is 'up', 'down' or 'nearest' (ties go up). With `saturate`, values outside of
    2^-127 to 2^127 become the nearer of the two bounds, otherwise NaN.
    """
    expect_inputs("cast_exponent", types, 1, 1)
    rounding, saturate = attributes["rounding"], attributes["saturate"]
    if rounding != "down" and rounding not in _UP:
        raise GraphError(f"operator 'cast_exponent': rounding {rounding!r}")
    power = "e(...i)" if rounding == "down" else f"e(...i) + ({_UP[rounding]} ? 1 : 0)"
    if saturate:
        value = f"m(...i) > 2139095040 ? 255 : min({power}, 254)"
    else:
        value = f"m(...i) >= 2139095040 || m(...i) < 4194304 ? 255 : {power}"
    statements = [
        "m(...i) = bits(float(x(...i))) & 2147483647",
        "e(...i) = m(...i) >> 23",
        "f(...i) = m(...i) & 8388607",
        f"y(...i) = as_float8_e8m0fnu(byte({value}))",
    ]
    return Written(definition("cast_exponent", ["T(...i) x"], statements))


def bit_cast(types: Types, attributes: Attributes, box: Box) -> Written:
    """Reinterpret the bits of x as another type of the same width; a bool is a byte of 0 or 1."""
    expect_inputs("bit_cast", types, 1, 1)
    have, to = types[0].dtype, attributes["to"]
    if have.bytes != to.bytes or 8 * to.bytes > max(have.bits, to.bits):
        raise GraphError(f"operator 'bit_cast': {have} and {to} differ in width")
    value = "byte(x(...i))" if have.kind == "bool" else "bits(x(...i))"
    value = f"cast<bool>({value})" if to.kind == "bool" else f"as_{to}({value})"
    return Written(definition("bit_cast", ["T(...i) x"], [f"y(...i) = {value}"]))


# ---- scales ------------------------------------------------------------------------------------


def quantize(types: Types, attributes: Attributes, box: Box) -> Written:
    """x / scale + zero, rounded and clamped to the range of the result's type.

    The division is done in `work`, and rounds half to even where the result is an integer.
    """
    expect_inputs("quantize", types, 2, 3)
    to, work = attributes["to"], attributes["work"] or types[1].dtype
    scaling, parameters, guards = _scaled("quantize", types, attributes)
    x = read("x", numbered("i", types[0].rank))
    value = f"quotient(cast<work>({x}), cast<work>({scaling[0]}))"
    if to.is_integer:
        low, high = to.range
        value = f"float(round({value}))"
        value = f"{value} + float({scaling[1]})" if len(types) == 3 else value
        value = f"int(min(max({value}, {low}.0), {high}.0))"
    else:
        value = f"{value} + cast<work>({scaling[1]})" if len(types) == 3 else value
        value = _limited(value, to) if attributes["saturate"] else value
    y = target("y", numbered("i", types[0].rank))
    statement = f"{y} = cast<to>({value})"
    text = definition("quantize", parameters, [statement], ["type to", "type work"])
    return Written(text, {"to": to, "work": work}, tuple(guards))


def dequantize(types: Types, attributes: Attributes, box: Box) -> Written:
    """(x - zero) * scale, multiplied in float32."""
    expect_inputs("dequantize", types, 2, 3)
    dtype = types[0].dtype
    scaling, parameters, guards = _scaled("dequantize", types, attributes)
    indices = numbered("i", types[0].rank)
    x, zero = read("x", indices), scaling[1] if len(types) == 3 else ""
    if dtype.is_integer and dtype.bits <= 16:
        x, zero = f"int({x})", f"int({zero})" if zero else ""
    value = f"float({x} - {zero})" if zero else f"float({x})"
    statement = f"{target('y', indices)} = cast<to>({value} * float({scaling[0]}))"
    to = attributes["to"] or types[1].dtype
    text = definition("dequantize", parameters, [statement], ["type to"])
    return Written(text, {"to": to}, tuple(guards))


def _scaled(
    name: str, types: Types, attributes: Attributes
) -> tuple[list[str], list[str], list[Guard]]:
    """Return the reads of scale and zero point, the parameters, and the guards of their sizes."""
    rank, block = types[0].rank, attributes["block"]
    sizes, indices = numbered("N", rank), numbered("i", rank)
    parameters, scaling, guards = [parameter("x", sizes)], [], []
    for kind, letter, word in zip(types[1:], "SZ", ("scale", "zero")):
        if kind.rank == 0:
            own: list[str] = []
            read_at: list[str] = []
        elif block:
            expect_rank(name, kind, rank, word)
            axis = axis_of(name, attributes["axis"], rank)
            own, read_at = [*sizes], [*indices]
            own[axis], read_at[axis] = f"{letter}B", f"i{axis} // {block}"
            count = ceil_div(types[0].shape[axis], block)
            guards.append(Guard(kind.shape[axis], "==", count, f"a {word} per {block} elements"))
        else:
            expect_rank(name, kind, 1, word)
            axis = axis_of(name, attributes["axis"], rank)
            own, read_at = [sizes[axis]], [indices[axis]]
        parameters.append(parameter(word, own, letter))
        scaling.append(read(word, read_at))
    return scaling, parameters, guards


def unpack_bits(types: Types, attributes: Attributes, box: Box) -> Written:
    """Unpack the fields of `bits` bits in bytes, low bits first, to bytes along the last axis."""
    expect_inputs("unpack_bits", types, 1, 1)
    bits = attributes["bits"]
    if bits not in (1, 2, 4) or not types[0].rank:
        raise GraphError(f"operator 'unpack_bits': fields of {bits} bits in {types[0]}")
    each, last = 8 // bits, types[0].shape[-1]
    field = f"int(x(...i, k // {each})) >> {bits} * (k % {each})"
    statement = f"y(...i, k) = byte(({field}) & {(1 << bits) - 1}) where k in 0:K"
    text = definition("unpack_bits", ["T(...i, L) x"], [statement], declared({"K": each * last}))
    return Written(text, {"K": each * last})


def requantize(types: Types, attributes: Attributes, box: Box) -> Written:
    """Requantise sums to small integers: t * scale, rounded half to even, plus zero, clamped."""
    expect_inputs("requantize", types, 3, 3)
    low, high = attributes["to"].range
    value = "round(float(t(...i)) * float(scale(...i))) + float(zero(...i))"
    text = definition(
        "requantize", ["T(...i) t", "S(...i) scale", "Z(...i) zero"],
        [f"y(...i) = cast<to>(int(min(max({value}, {low}.0), {high}.0)))"], ["type to"],
    )  # fmt: skip
    return Written(text, {"to": attributes["to"]})


# ---- sums of products --------------------------------------------------------------------------


def matmul_integer(types: Types, attributes: Attributes, box: Box) -> Written:
    """Matrix product of small integers minus their zero points, as int32.

    The zero point of a is a scalar, one per row, or of a's shape with one column; same for b.
    """
    expect_inputs("matmul_integer", types, 4, 4)
    left, right = types[0].rank, types[1].rank
    if not left or not right:
        raise GraphError("operator 'matmul_integer' does not take scalars", "use 'mul'")
    a = (["...p"] if left > 2 else []) + (["m"] if left > 1 else []) + ["k"]
    b = (["...p"] if right > 2 else []) + ["k"] + (["n"] if right > 1 else [])
    y = (["...p"] if max(left, right) > 2 else []) + [i for i in ("m", "n") if i in a + b]
    parameters, factors = [], []
    for name, letter, indices, zero in (("a", "A", a, types[2]), ("b", "B", b, types[3])):
        own, sizes = _zero_of(types["ab".index(name)], zero, indices)
        parameters.append(parameter(name, upper_names(indices), letter))
        factors.append((read(name, indices), f"{name}_zero", own, sizes, letter))
    parameters += [parameter(f"{n}", sizes, letter) for _, n, _, sizes, letter in factors]
    product = " * ".join(f"(int({x}) - int({read(n, own)}))" for x, n, own, _, _ in factors)
    return Written(definition("matmul_integer", parameters, [f"{target('y', y)} +=! {product}"]))


def _zero_of(
    matrix: TensorType, zero: TensorType, indices: list[str]
) -> tuple[list[str], list[str]]:
    """Indices and sizes of the zero point of a matrix."""
    kept = [index for index in indices if index not in ("k", "...p")]
    if zero.rank == 0:
        return [], []
    if zero.rank == 1 and len(kept) == 1:
        return kept, upper_names(kept)
    if zero.rank != matrix.rank:
        raise GraphError(f"operator 'matmul_integer': zero point {zero} does not fit {matrix}")
    own = ["0" if index == "k" else index for index in indices]
    sizes = zip(indices, upper_names(indices))
    return own, ["1" if index == "k" else size for index, size in sizes]


def conv_integer(types: Types, attributes: Attributes, box: Box) -> Written:
    """Convolution of small integers minus their zero points, as int32; padding counts as 0.

    The zero point of x is a scalar, that of w a scalar or one per output channel.
    """
    expect_inputs("conv_integer", types, 4, 4)
    expect_rank("conv_integer", types[2], 0, "the zero point of x")
    moved = slide("conv_integer", types, attributes, box)
    x = f"({moved.x} else x_zero)" if moved.padded else moved.x
    channel = ["m"] if types[3].rank else []
    w = f"int({moved.w}) - int({read('w_zero', channel)})"
    statement = f"{target('y', moved.result)} +=! (int({x}) - int(x_zero)) * ({w}){moved.where}"
    parameters = [
        parameter("x", moved.x_sizes, "X"), parameter("w", moved.w_sizes, "W"), "X x_zero",
        parameter("w_zero", ["M"] if types[3].rank else [], "W"),
    ]  # fmt: skip
    text = definition("conv_integer", parameters, [statement], declared(moved.values))
    return Written(text, moved.values, moved.guards)
