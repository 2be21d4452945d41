"""How a dialect of C spells what loop IR says: one record, all that the printer asks.

To add a dialect (CUDA C), write another record: docs/new-target.md walks through this one, and
`opencl/dialect.py` is the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.targets.functions.primitives import Primitives


@dataclass(frozen=True)
class Literals:
    """The numbers that have no digits, and what stands after digits, by the name of a type."""

    infinity: Mapping[str, str]
    nan: Mapping[str, str]
    suffix: Mapping[str, str]


@dataclass(frozen=True)
class Dialect:
    """A dialect of C. Texts in braces are filled in by the printer.

    `head` begins every file. `scalars` are the types that names like f32 and u8 stand for.
    `scalar` and `vector` define such a name; `unaligned` a vector type for memory, which may stand
    at any element and be read as anything. `inline`, `internal` and `public` begin functions.
    `pointer` is a parameter that no other pointer meets, `alias` one that others may. `stack` is a
    local array, `prefetch` a hint, `shuffle` and `convert` work on whole vectors. `symbol` gives a
    function a name that is no identifier. `quick` begins a function that runs seldom, `entry` one
    that is launched: its address is no odd number (`runtime/variant_tables.py`). `atomics`
    are the lines of a step on an int64 that other threads see, which name what was there before;
    `pause` is what a processor of some architecture does while it waits. `primitives` are what
    loop IR is legalised to.

    `flag` is the type of one flag. `several` makes a vector of its lanes, `same` of one number;
    `lane` is one of them, `cast` the same bits as another type as wide. `overflows` says whether
    int64 arithmetic does. `spaces` says how pointers to memory of a kind ('global', 'local',
    'private') begin, where they differ: a function is then written for every kind that it meets.
    Of kernels of groups, `item` is the number of an item, `barrier` where items meet, `copies_end`
    and `copies_wait` what ends a lot of copies aside and waits for all but the last ones.
    """

    name: str
    suffix: str
    head: str
    scalars: Mapping[str, str]
    scalar: str
    vector: str
    unaligned: str
    inline: str
    internal: str
    public: str
    pointer: str
    alias: str
    stack: str
    prefetch: str
    shuffle: str
    convert: str
    symbol: str
    quick: str
    entry: str
    atomics: Mapping[str, tuple[str, ...]]
    fence: str
    pause: Mapping[str, str]
    literals: Literals
    primitives: Primitives
    flag: str = "_Bool"
    several: str = "({type}){{{lanes}}}"
    same: str = ""
    lane: str = "{value}[{lane}]"
    cast: str = "({type}){value}"
    overflows: str = "__builtin_{function}_overflow({parts}, &({type}){{0}})"
    spaces: Mapping[str, str] = field(default_factory=dict)
    item: str = ""
    barrier: str = ""
    copies_end: str = ""
    copies_wait: str = ""


C11 = Dialect(
    name="C11",
    suffix=".c",
    head="""\
/* {title} */

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
#if !__has_builtin(__builtin_shufflevector)
#error anydim needs a compiler with __builtin_shufflevector: GCC 12, clang or zig cc
#endif
""",
    scalars={
        "f32": "float", "f64": "double",
        "i8": "__INT8_TYPE__", "i16": "__INT16_TYPE__",
        "i32": "__INT32_TYPE__", "i64": "__INT64_TYPE__",
        "u8": "__UINT8_TYPE__", "u16": "__UINT16_TYPE__",
        "u32": "__UINT32_TYPE__", "u64": "__UINT64_TYPE__",
    },
    scalar="typedef {type} {name} __attribute__((may_alias));",
    vector="typedef {type} {name} __attribute__((vector_size({bytes})));",
    unaligned=(
        "typedef {type} {name}_at"
        " __attribute__((vector_size({bytes}), aligned({align}), may_alias));"
    ),
    inline="static inline __attribute__((always_inline)) ",
    internal="static ",
    public="",
    pointer="{type} *restrict {name}",
    alias="{type} *{name}",
    stack="_Alignas(64) {type} {name}[{count}];",
    prefetch="__builtin_prefetch({place}, {write}, {near});",
    shuffle="__builtin_shufflevector({left}, {right}, {lanes})",
    convert="__builtin_convertvector({value}, {type})",
    symbol=' __asm__("{name}")',
    quick="__attribute__((cold)) ",
    entry="__attribute__((aligned(16))) ",
    atomics={
        "load": ("const {type} {before} = __atomic_load_n({place}, __ATOMIC_SEQ_CST);",),
        "store": ("__atomic_store_n({place}, {a}, __ATOMIC_SEQ_CST);",),
        "add": ("const {type} {before} = __atomic_fetch_add({place}, {a}, __ATOMIC_SEQ_CST);",),
        "exchange_if": (
            "{type} {before} = {a};",
            "__atomic_compare_exchange_n({place}, &{before}, {b}, 0,"
            " __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);",
        ),
    },
    fence="__atomic_thread_fence(__ATOMIC_SEQ_CST);",
    pause={"x86_64": "__builtin_ia32_pause();", "aarch64": '__asm__ volatile("yield");'},
    literals=Literals(
        infinity={"f32": "__builtin_inff()", "f64": "__builtin_inf()"},
        nan={"f32": '__builtin_nanf("")', "f64": '__builtin_nan("")'},
        suffix={"f32": "f", "u32": "u", "u64": "ull", "i64": "ll"},
    ),
    primitives=Primitives(functions=frozenset(("copysign",))),
)  # fmt: skip


def held(dtype: DType) -> str:
    """The name of the type that holds a value: f32, i64, u8, ...; a flag is a byte in memory.

    What is legalised to its bits (narrow floats, narrow integers) is held as them.
    """
    if dtype.kind == "bool" or dtype.stored or dtype.format is not None:
        return f"u{8 * dtype.bytes}"
    if dtype.kind == "float":
        return f"f{dtype.bits}" if dtype.bits > 16 else "u16"
    return f"{dtype.kind[0]}{dtype.bits}"
