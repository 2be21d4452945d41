"""CUDA texts compiled as C++ for this processor: what kernels compute, where there is no device.

Blocks run one after another; the items of a block of a kernel of groups are threads, which meet at
barriers. What a device makes of the same text is for `make test-gpu`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

from anydim.base.cache import key_of
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.targets.c.loader import load
from anydim.compiler.targets.c.names import identifier
from anydim.compiler.targets.compilation import Compilation
from anydim.compiler.targets.cuda.compiler import architecture
from anydim.compiler.targets.cuda.render import sources
from anydim.compiler.targets.processor import NATIVE, Processor
from anydim.compiler.targets.target import Source, Target
from anydim.compiler.targets.targets import TARGETS, target

FLAGS = ("-std=c++17", "-O1", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-mfma",
         "-mf16c", "-pthread", "-w")  # fmt: skip
SHIM = r"""\
#include <cmath>
#include <cstring>
#include <pthread.h>
#include <immintrin.h>
#include <stdlib.h>
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(items)
struct Number { unsigned x; };
static thread_local Number threadIdx, blockIdx, blockDim;
static pthread_barrier_t meeting;
static inline void __syncthreads() { pthread_barrier_wait(&meeting); }
struct Item { long long *words, at, stop; void *scratch; unsigned number; };
static inline float __int_as_float(int a) { float b; memcpy(&b, &a, 4); return b; }
static inline double __longlong_as_double(long long a) { double b; memcpy(&b, &a, 8); return b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
static inline int __ffsll(long long a) { return __builtin_ffsll(a); }
static inline int __clzll(long long a) { return a == 0 ? 64 : __builtin_clzll(a); }
static inline float as_float(unsigned a) { return __int_as_float((int)a); }
static inline unsigned to_tf32(float a) {
  unsigned bits;
  memcpy(&bits, &a, 4);
  return a != a ? bits : (bits + 0x1000) & ~0x1fffu;
}
static float part(const char *kind, unsigned word, int half) {
  if (!strcmp(kind, "tf32")) return as_float(word);
  unsigned bits = half ? word >> 16 : word & 0xffff;
  if (!strcmp(kind, "bf16")) return as_float(bits << 16);
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float size = exponent == 31 ? (fraction ? NAN : INFINITY)
               : exponent ? ldexpf(1024 + fraction, exponent - 25) : ldexpf(fraction, -24);
  return bits >> 15 ? -size : size;
}
static unsigned fragments[32][32][6];
static pthread_barrier_t warps[32];
static void mma(const char *kind, float &c0, float &c1, float &c2, float &c3, unsigned a0,
                unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, each = strcmp(kind, "tf32") ? 2 : 1;
  unsigned given[6] = {a0, a1, a2, a3, b0, b1};
  memcpy(fragments[warp][lane], given, sizeof given);
  pthread_barrier_wait(&warps[warp]);
  float *sums[4] = {&c0, &c1, &c2, &c3};
  for (int n = 0; n < 4; n++) {
    int row = lane / 4 + 8 * (n / 2), column = lane % 4 * 2 + n % 2;
    double total = *sums[n];
    for (int k = 0; k < 8 * each; k++) {
      int item = k / each % 4, half = k % each, late = k / (4 * each);
      float a = part(kind, fragments[warp][row % 8 * 4 + item][row / 8 + 2 * late], half);
      total += (double)a * part(kind, fragments[warp][column * 4 + item][4 + late], half);
    }
    *sums[n] = total;
  }
  pthread_barrier_wait(&warps[warp]);
}
struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static unsigned long long exchanged[32][32];
template <typename T> static T __shfl_xor_sync(unsigned, T value, int distance) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  memcpy(&exchanged[warp][lane], &value, sizeof value);
  pthread_barrier_wait(&warps[warp]);
  memcpy(&value, &exchanged[warp][lane ^ distance], sizeof value);
  pthread_barrier_wait(&warps[warp]);
  return value;
}
struct Copy { void *to; char held[16]; int bytes, lot; };
static thread_local Copy copies[4096];  // in progress
static thread_local int begun, lot;
static thread_local void *shared;
static inline size_t __cvta_generic_to_shared(void *to) { shared = to; return 0; }
static void copy_aside(const void *from, unsigned valid, int bytes) {
  if (begun == 4096) abort();
  copies[begun] = {shared, {}, bytes, lot};
  memcpy(copies[begun++].held, from, valid);
}
static void copies_end() { lot++; }
static void copies_wait(int left) {
  int kept = 0;
  for (int n = 0; n < begun; n++) {
    Copy &copy = copies[n];
    if (copy.lot < lot - left) memcpy(copy.to, copy.held, copy.bytes);
    else copies[kept++] = copy;
  }
  begun = kept;
}
static inline long long __mul64hi(long long a, long long b) { return ((__int128)a * b) >> 64; }
"""
ENTRY = """
extern "C" void {name}(long long *words, long long start, long long stop, void *scratch) {{
  for (long long at = start; at < stop; at++) {{
{body}
  }}
}}
"""
ONE = """\
    blockDim.x = {items};
    blockIdx.x = at / {items};
    threadIdx.x = at % {items};
    {name}_text({given}, stop, 1, (unsigned char *)scratch, 0);"""
GROUP = """\
    pthread_barrier_init(&meeting, nullptr, {group});
    for (int n = 0; n < {group} / 32; n++) pthread_barrier_init(&warps[n], nullptr, 32);
    Item items[{group}];
    pthread_t threads[{group}];
    for (unsigned n = 0; n < {group}; n++) {{
      items[n] = Item{{words, at, stop, scratch, n}};
      pthread_create(&threads[n], nullptr, {name}_item, &items[n]);
    }}
    for (unsigned n = 0; n < {group}; n++) pthread_join(threads[n], nullptr);
    for (int n = 0; n < {group} / 32; n++) pthread_barrier_destroy(&warps[n]);
    pthread_barrier_destroy(&meeting);"""
ITEM = """
static void *{name}_item(void *given) {{
  const Item *item = (const Item *)given;
  const long long *words = item->words;
  blockIdx.x = item->at;
  threadIdx.x = item->number;
  {name}_text({given}, item->stop, 1, (unsigned char *)item->scratch, 0);
  return nullptr;
}}
"""


def has_cxx() -> bool:
    """Whether this machine has a C++ compiler."""
    return shutil.which("c++") is not None


@contextmanager
def cuda_on_host() -> Iterator[None]:
    """Target 'cuda' makes code of this processor."""
    made = target("cuda")
    host = replace(
        made, launch="range", sources=_sources, compiling=_compiling, load=load, ordered=True
    )
    with patch.dict(TARGETS, {"cuda": replace(TARGETS["cuda"], make=_made(host))}):
        yield


@contextmanager
def cuda_symbols() -> Iterator[None]:
    """Code of target 'cuda' is the names of its kernels, which a fake driver runs or not."""
    named = replace(target("cuda"), compiling=_naming)
    with patch.dict(TARGETS, {"cuda": replace(TARGETS["cuda"], make=_made(named))}):
        yield


def _naming(processor: Processor, threads: int = 0) -> Compilation:
    def compiled(module: Source) -> bytes:
        text = module.text()
        (name,) = re.findall(r"__launch_bounds__\(\d+\) (\w+)\(", text)
        return f"{name}{'+' * (f'{name}_range' in text)}".encode()

    return Compilation(compiled, lambda module: key_of("names", module.identity), threads)


def _made(host: Target) -> Callable[[Processor], Target]:
    return lambda processor: replace(host, processor=processor)


def _sources(code: Iterable[ir.Kernel | ir.Library], processor: Processor) -> dict[str, Source]:
    kernels = {made.name: made for made in code if isinstance(made, ir.Kernel)}
    texts = sources(kernels.values(), architecture(NATIVE))
    return {name: Source.of(_text(kernels[name], texts[name].text())) for name in kernels}


def _text(kernel: ir.Kernel, text: str) -> str:
    """The text with a function that is called as those of other targets are."""
    name = identifier(kernel.name)
    words = [f"words[{number}]" for number in range(len(kernel.operands) + len(kernel.sizes))]
    head = re.search(rf"__launch_bounds__\(\d+\) {name}\(([^)]*)\)", text)
    assert head is not None
    kinds = [part.rpartition(" ")[0] for part in head[1].split(", ")]
    stars = [part.rpartition(" ")[2].startswith("*") for part in head[1].split(", ")]
    given = ", ".join(
        f"({kind} *){word}" if star else word for word, kind, star in zip(words, kinds, stars)
    )
    body = (GROUP if kernel.group else ONE).format(
        name=name, given=given, items=128, group=kernel.group
    )
    renamed = re.sub(rf"\b{name}\(", f"{name}_text(", text)
    item = ITEM.format(name=name, given=given) if kernel.group else ""
    return SHIM + _without_assembly(renamed) + item + ENTRY.format(name=name, body=body)


_ASSEMBLY = re.compile(r'asm(?: volatile)?\("([\w.]+)([^"]*)"((?: :| ,|,| |"[^"]*"|\(\w+\))*)\);')


def _without_assembly(text: str) -> str:
    """Calls of functions of the shim for instructions, by their names and operands."""

    def called(match: re.Match[str]) -> str:
        instruction, given = match[1].split("."), re.findall(r"\((\w+)\)", match[3])
        number = re.search(r"\d+(?=[;,] ?%?2?;?$)", match[2])
        if instruction[:2] == ["cp", "async"]:
            if instruction[2] == "commit_group":
                return "copies_end();"
            assert number is not None
            if instruction[2] == "wait_group":
                return f"copies_wait({number[0]});"
            return f"copy_aside({given[1]}, {given[2]}, {number[0]});"
        if instruction[0] == "mma":
            return f'mma("{instruction[7]}", {", ".join(given)});'
        converted = {"rna.tf32.f32": "to_tf32({})", "f32.f16": "_cvtsh_ss({})",
                     "rn.f16.f32": "_cvtss_sh({}, 0)"}  # fmt: skip
        return f"{given[0]} = {converted['.'.join(instruction[1:])].format(given[1])};"

    return _ASSEMBLY.sub(called, text)


def _compiling(processor: Processor, threads: int = 0) -> Compilation:
    return Compilation(
        partial(_compiled), lambda module: key_of("cuda on host", *FLAGS, module.identity), threads
    )


def _compiled(module: Source) -> bytes:
    text = module.text()
    with tempfile.TemporaryDirectory(prefix="anydim-") as folder:
        source, made = Path(folder, "code.cc"), Path(folder, "code.o")
        source.write_text(text, "utf-8")
        command = ["c++", *FLAGS, "-c", str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InternalError(f"{' '.join(command)}\n{done.stderr}\n{text}")
        return made.read_bytes()
