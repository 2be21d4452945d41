"""What the corpus keeps of a program, made for a machine that does not depend on this one.

Templates see a machine with 32-byte vectors. The code that LLVM makes of their kernels is for this
machine; its results are the same bits on every x86-64 with FMA, because kernels say which products
are fused and in which order sums are added, and LLVM may change neither. In bfloat16, they see one
with 64-byte vectors that adds products of pairs, which code for other machines does step by step.
Kernels for tiles are run by the evaluator of loop IR, which has them on every machine.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any
from unittest.mock import patch

import numpy

import anydim as ad
from anydim.base.dtypes import DType
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.kernels.ir_text import print_function, print_kernel
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.targets.evaluated import EvaluatedDevice
from anydim.compiler.targets.functions.legalise import legalise
from anydim.compiler.targets.functions.primitives import Primitives
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.processor import NATIVE, Processor, describe_processor
from anydim.compiler.targets.targets import TARGETS
from anydim.sizes import Size
from tests.golden.case import Case, Sizes
from tests.golden.numbers import drawn

MACHINE = Machine(vector_bytes=32, registers=16, l1_bytes=32 * 1024, l2_bytes=512 * 1024)
OF_PAIRS = replace(MACHINE, vector_bytes=64, pairs=True)
OF_TILES, TILED = replace(OF_PAIRS, pair_tiles=True), "x86-64-v4+amx-bfloat16"
PRIMITIVES = Primitives(True, frozenset(("copysign", "dot_bfloat16")))
Kept = dict[str, dict[str, str]]


def why_not() -> str:
    """Why results of this machine need not be those of the corpus; empty where they must."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return f"the corpus is of x86-64, this is {platform.machine()}"
    if not {"avx2", "fma"} <= this_machine().has:
        return "the corpus is of processors with AVX2 and FMA"
    return ""


class Evaluated(EvaluatedDevice):
    """The evaluator of loop IR, for kernels of the primitives that machine code is made of."""

    def _load(self, code: Mapping[str, bytes], symbols: Sequence[str]) -> Mapping[str, int]:
        entries = super()._load(code, symbols)
        first = min(entries.values(), default=0)
        self._kernels[first:] = map(_legal, self._kernels[first:])
        return entries


def _legal(kernel: Kernel) -> Kernel:
    made = tuple(Library(one.name, legalise(one.functions, PRIMITIVES)) for one in kernel.libraries)
    return replace(kernel, functions=legalise(kernel.functions, PRIMITIVES), libraries=made)


@contextmanager
def fixed_machine(
    processor: str = NATIVE, target: str = "llvm", machine: Machine = MACHINE
) -> Iterator[None]:
    """Templates see the machine of the corpus; code is for this processor or a described one."""
    kind = TARGETS[target]
    code_for = this_machine() if processor == NATIVE else describe_processor(processor)
    known = {field.name for field in fields(code_for)}
    names = (field.name for field in fields(machine))
    sizes = {name: getattr(machine, name) for name in names if name in known}
    seen = replace(code_for, name=NATIVE, plain=True, **sizes)
    with (
        patch.dict(TARGETS, {target: replace(kind, make=lambda _: kind.make(seen))}),
        _multiplies_as(machine),
        ad.settings.override(winograd=True, keep_programs=False),
    ):
        yield


@contextmanager
def _multiplies_as(machine: Machine) -> Iterator[None]:
    """Templates see the instructions for pairs of a machine, or none, whatever this one has."""
    told = Processor.machine.fget
    assert told is not None
    own = {"pairs": machine.pairs, "pair_tiles": machine.pair_tiles}
    with patch.object(Processor, "machine", property(lambda self: replace(told(self), **own))):
        yield


def compiled(
    case: Case, threads: int = 1, processor: str = NATIVE, target: str = "llvm"
) -> ad.Model:
    options = {"dims": case.dims, "threads": threads, "target": target, "ragged": case.ragged}
    machine = OF_PAIRS if case.precision == "bfloat16" else MACHINE
    if case.on_tiles:
        machine = OF_TILES
        devices = {"evaluated": Evaluated("evaluated", TILED)}
        options |= {"devices": devices, "placement": {"*": "evaluated"}}
    with fixed_machine(processor, target, machine):
        return ad.compile(case.source(), precision=case.precision, **options)


def kept(case: Case, threads: int = 1, processor: str = NATIVE, target: str = "llvm") -> Kept:
    """Kernels and libraries by name, and results by sizes, as short hashes; names of versions."""
    model = compiled(case, threads, processor, target)
    return {"kernels": kernels(model), "outputs": outputs(case, model), "versions": versions(model)}


def versions(model: ad.Model) -> dict[str, str]:
    """The versions that the launches of each kind of schedule list."""
    found: dict[str, dict[str, None]] = {}
    for site in model.program.sites:
        if site.versions:
            names = found.setdefault(site.schedule.partition("(")[0], {})
            names.update(dict.fromkeys(name for name, _ in site.versions))
    return {kind: ", ".join(sorted(names)) for kind, names in sorted(found.items())}


def kernels(model: ad.Model) -> dict[str, str]:
    """Name -> hash of the text without the name, of kernels and of the libraries they call."""
    found = {}
    for kernel in model.report.kernels.values():
        found[kernel.name] = short(print_kernel(kernel).replace(kernel.name, "kernel", 1))
        found |= {one.name: short(_library_text(one)) for one in kernel.libraries}
    return dict(sorted(found.items()))


def _library_text(library: Library) -> str:
    return "\n".join(map(print_function, library.functions))


def outputs(case: Case, model: ad.Model) -> dict[str, str]:
    """The hash of all results of a call, by its sizes."""
    found = {}
    for sizes in case.sizes:
        results = model(**inputs(case, model, sizes))
        named = results if isinstance(results, dict) else {"": results}
        told = " ".join(f"{name}={size}" for name, size in sizes.items())
        rows = (
            (name, row) for name, a in sorted(named.items()) for row in (a if case.ragged else [a])
        )
        found[told] = short(b"".join(_content(name, row) for name, row in rows))
    return found


def inputs(case: Case, model: ad.Model, sizes: Sizes) -> dict[str, Any]:
    """The inputs of a call: arrays, or lists of those of rows."""
    if case.ragged:
        rows = [dict(zip(sizes, row)) for row in zip(*sizes.values())]
        dtypes = {spec.name: spec.dtype for spec in model.inputs}
        ports = {name: model.lists[name] for name in model.input_names()}
        return {
            name: [_drawn(case, name, dtypes[port.values], port.shape, row) for row in rows]
            for name, port in ports.items()
        }
    return {
        spec.name: _drawn(case, spec.name, spec.dtype, spec.shape, sizes) for spec in model.inputs
    }


def _drawn(case: Case, name: str, dtype: DType, sizes: Sequence[Size], at: Sizes) -> numpy.ndarray:
    shape = [size.evaluate(at) for size in sizes]
    return drawn(dtype, shape, f"{case.name} {name} {shape}", case.spans.get(name))


def _content(name: str, array: Any) -> bytes:
    """Name, dtype, shape and bytes; all NaNs are one."""
    array = numpy.array(array)
    if array.dtype.kind == "f":
        array[numpy.isnan(array)] = numpy.nan
    return f"{name} {array.dtype} {array.shape}".encode() + array.tobytes()


def short(content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:16]


def differences(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In words, what became of a program."""
    lines = []
    old, new = before["kernels"], now["kernels"]
    gone, came = [k for k in old if k not in new], [k for k in new if k not in old]
    for kernel in gone:
        same = [other for other in came if new[other] == old[kernel]]
        if same:
            came.remove(same[0])
            lines.append(f"{name}: kernel {kernel} is called {same[0]}, its text is the same")
        else:
            lines.append(f"{name}: kernel {kernel} is gone, or its text changed")
    lines += [f"{name}: kernel {kernel} is new" for kernel in came]
    lines += [
        f"{name}: the text of kernel {kernel} changed, its name did not"
        for kernel in old if kernel in new and old[kernel] != new[kernel]
    ]  # fmt: skip
    for kind in {**before.get("versions", {}), **now.get("versions", {})}:
        named = [each.get("versions", {}).get(kind, "none") for each in (before, now)]
        if named[0] != named[1]:
            lines.append(f"{name}: versions of {kind} were {named[0]} and are {named[1]}")
    for sizes in {**before["outputs"], **now["outputs"]}:
        first, second = before["outputs"].get(sizes), now["outputs"].get(sizes)
        if first is None or second is None:
            lines.append(f"{name}: results at {sizes} are {'new' if first is None else 'gone'}")
        elif first != second:
            lines.append(f"{name}: bits of the results at {sizes} changed")
    return lines
