"""The OpenCL C 1.2 dialect."""

from __future__ import annotations

from anydim.compiler.targets.c.dialect import Dialect, Literals
from anydim.compiler.targets.functions.primitives import Primitives

MAX_LANES = 16  # vectors have 2, 4, 8 or 16 lanes

OPENCL = Dialect(
    name="OpenCL C 1.2",
    suffix=".cl",
    head="""\
/* {title} */

#pragma OPENCL FP_CONTRACT OFF
#if defined(ON_PROCESSOR) && defined(__clang__)
#define PLAIN 1  /* functions of OpenCL are calls there; what clang has itself is not */
#endif
""",
    scalars={
        "f32": "float", "f64": "double",
        "i8": "char", "i16": "short", "i32": "int", "i64": "long",
        "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulong",
    },
    scalar=(
        "typedef {type} {name} __attribute__((may_alias));\n"
        "#define as_{name} as_{type}"
    ),
    vector=(
        "typedef {type}{lanes} {name};\n"
        "#define as_{name} as_{type}{lanes}\n"
        "#ifdef PLAIN\n#define convert_{name}(a) __builtin_convertvector(a, {type}{lanes})\n"
        "#else\n#define convert_{name} convert_{type}{lanes}\n#endif"
    ),
    unaligned="typedef {type}{lanes} {name}_at __attribute__((aligned({align}), may_alias));",
    inline="static inline __attribute__((always_inline)) ",
    internal="static ",
    public="static ",
    pointer="{type} *restrict {name}",
    alias="{type} *{name}",
    stack="{type} {name}[{count}] __attribute__((aligned(64)));",
    prefetch="",
    shuffle="",
    convert="convert_{type}({value})",
    symbol="",
    quick="",
    entry="__kernel ",
    atomics={},
    fence="",
    pause={},
    literals=Literals(
        infinity={"f32": "as_float(0x7f800000u)", "f64": "as_double(0x7ff0000000000000ul)"},
        nan={"f32": "as_float(0x7fc00000u)", "f64": "as_double(0x7ff8000000000000ul)"},
        suffix={"f32": "f", "u32": "u", "u64": "ul", "i64": "l"},
    ),
    primitives=Primitives(functions=frozenset(("copysign",))),
    flag="bool",
    several="({type})({lanes})",
    same="({type})({value})",
    lane="{value}.s{lane:x}",
    cast="as_{type}({value})",
    overflows="",
    spaces={"global": "__global ", "local": "__local ", "private": ""},
    item="({type})get_local_id(0)",
    barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
)  # fmt: skip
