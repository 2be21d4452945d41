"""C dialects: one record defines the syntax that the printer emits.

To add a dialect (CUDA C), write another record: docs/new-target.md walks through this one, and
`opencl/dialect.py` is the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.targets.functions.primitives import Primitives


@dataclass(frozen=True)
class Literals:
    """Literals of infinity and NaN, and suffixes of numbers, by type name."""

    infinity: Mapping[str, str]
    nan: Mapping[str, str]
    suffix: Mapping[str, str]


@dataclass(frozen=True)
class Dialect:
    """A dialect of C. The printer fills in texts in braces.

    `head` begins every file. `scalars` are the definitions of type names such as f32 and u8.
    `scalar` and `vector` define such a name; `unaligned` defines a vector type for memory, aligned
    to an element and exempt from strict aliasing. `inline`, `internal` and `public` begin
    functions. `pointer` is a restrict parameter, `alias` one that may alias. `stack` is a local
    array, `prefetch` a hint; `shuffle` and `convert` work on whole vectors. `symbol` sets the
    linker symbol of a function whose name is not an identifier. `quick` begins a rarely executed
    function, `entry` one that is launched: its address is even (`runtime/variant_tables.py`).
    `atomics` are the lines of an atomic step on int64, with the previous value in a variable;
    `pause` is the spin-wait hint per architecture. `primitives` are what loop IR is legalised to.

    `flag` is the type of a scalar flag. `several` makes a vector from its lanes, `same` broadcasts
    a number; `lane` is a lane, `cast` a bit cast of the same width. `overflows` detects overflow of
    int64 arithmetic. With `splits`, vectors wider than a register are handled in halves and
    conversions in steps, where the compiler would work lane by lane. `spaces` are the qualifiers of
    address spaces ('global', 'local', 'private'), if the dialect has them: a function is then
    emitted per address space. For group kernels, `item` is the local id, `barrier` the barrier,
    `copies_end` commits a group of async copies and `copies_wait` waits for all but the last
    groups; `unroll` precedes a loop to unroll.
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
    splits: bool = False
    spaces: Mapping[str, str] = field(default_factory=dict)
    item: str = ""
    barrier: str = ""
    copies_end: str = ""
    copies_wait: str = ""
    unroll: str = ""


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
    prefetch="__builtin_prefetch({address}, {write}, {near});",
    shuffle="__builtin_shufflevector({left}, {right}, {lanes})",
    convert="__builtin_convertvector({value}, {type})",
    symbol=' __asm__("{name}")',
    quick="__attribute__((cold)) ",
    entry="__attribute__((aligned(16))) ",
    atomics={
        "load": ("const {type} {before} = __atomic_load_n({address}, __ATOMIC_SEQ_CST);",),
        "store": ("__atomic_store_n({address}, {a}, __ATOMIC_SEQ_CST);",),
        "add": ("const {type} {before} = __atomic_fetch_add({address}, {a}, __ATOMIC_SEQ_CST);",),
        "exchange_if": (
            "{type} {before} = {a};",
            "__atomic_compare_exchange_n({address}, &{before}, {b}, 0,"
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
    splits=True,
)  # fmt: skip


def storage_name(dtype: DType) -> str:
    """Return the name of the type that stores a value: f32, i64, u8, ...; a flag is a byte in
    memory.

    Types that are legalised to their bits (narrow floats, narrow integers) are stored as bits.
    """
    if dtype.kind == "bool" or dtype.stored or dtype.format is not None:
        return f"u{8 * dtype.bytes}"
    if dtype.kind == "float":
        return f"f{dtype.bits}" if dtype.bits > 16 else "u16"
    return f"{dtype.kind[0]}{dtype.bits}"
