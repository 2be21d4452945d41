"""The CUDA C++ dialect. There are no vectors: a thread has one lane."""

from __future__ import annotations

from anydim.compiler.targets.c.dialect import Dialect, Literals
from anydim.compiler.targets.functions.primitives import Primitives

MAX_LANES = 1

CUDA = Dialect(
    name="CUDA C++17",
    suffix=".cu",
    head="""\
/* {title} */

template <typename To, typename From>
static __device__ __forceinline__ To same_bits(From from) {{
  static_assert(sizeof(To) == sizeof(From), "bits of one size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}}
""",
    scalars={
        "f32": "float", "f64": "double",
        "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
        "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned int",
        "u64": "unsigned long long",
    },
    scalar="typedef {type} {name};",
    vector="",
    unaligned="",
    inline="static __device__ __forceinline__ ",
    internal="static __device__ ",
    public="static __device__ ",
    pointer="{type} *__restrict__ {name}",
    alias="{type} *{name}",
    stack="alignas(16) {type} {name}[{count}];",
    prefetch="",
    shuffle="",
    convert="",
    symbol="",
    quick="",
    entry="",
    atomics={},
    fence="",
    pause={},
    literals=Literals(
        infinity={
            "f32": "__int_as_float(0x7f800000)",
            "f64": "__longlong_as_double(0x7ff0000000000000ll)",
        },
        nan={
            "f32": "__int_as_float(0x7fc00000)",
            "f64": "__longlong_as_double(0x7ff8000000000000ll)",
        },
        suffix={"f32": "f", "u32": "u", "u64": "ull", "i64": "ll"},
    ),
    primitives=Primitives(halves=True, functions=frozenset(("copysign",))),
    flag="bool",
    several="{type}({lanes})",
    cast="same_bits<{type}>({value})",
    overflows="",
    spaces={"global": "", "local": "", "private": ""},  # pointers are generic
    item="({type})threadIdx.x",
    barrier="__syncthreads();",
    unroll="#pragma unroll",
    copies_end='asm volatile("cp.async.commit_group;" : : : "memory");',
    copies_wait='asm volatile("cp.async.wait_group {left};" : : : "memory");',
)  # fmt: skip
