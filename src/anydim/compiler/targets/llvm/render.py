"""Loop IR to the text of LLVM modules.

A kernel's module exports `void @NAME(ptr arguments, i64 start, i64 stop, ptr scratch)`, where
`arguments` points to 8-byte slots: the operands' pointers in order, then the int64 sizes. It
imports only the library functions it calls. Libraries and host code export their public functions
under their own names. WebAssembly compares the type of a function with that of its call, so there
an entry takes the int64s that the host passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.targets.functions.legalise import legalise
from anydim.compiler.targets.llvm.emitter import Module
from anydim.compiler.targets.llvm.primitives import primitives
from anydim.compiler.targets.llvm.spelling import symbol, type_text
from anydim.compiler.targets.llvm.steps import Steps
from anydim.compiler.targets.llvm.values import ZERO, Buffer
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Source, sources_with_libraries

_OPTIMISED = "#0"
_QUICK = "#1"  # compiles in a third of the time; straight-line code runs as fast
_ZEROS = f"{ZERO} = private unnamed_addr constant i64 0, align 8"


def sources(code: Iterable[ir.Kernel | ir.Library], processor: Processor) -> dict[str, Source]:
    """Return the modules of kernels, of the libraries they use and of other ones, by name."""
    return sources_with_libraries(code, partial(_source, processor=processor))


def _source(code: ir.Kernel | ir.Library, processor: Processor) -> Source:
    """Return a module whose identity is its contents, vector width and code generator.

    The features of the processor, which texts depend on too, are in the key of every object.
    """
    level = level_of(code, processor)
    compiled_for = None if level is processor else level
    text = partial(render, code, level)
    return Source.of_code(code, text, processor.vector_bytes, processor=compiled_for)


def level_of(code: ir.Kernel | ir.Library, processor: Processor) -> Processor:
    """Return the processor that code is compiled for; for portable code, the processor's level."""
    with_dots = isinstance(code, ir.Library) and code.dots
    level = processor.level_with_dots if with_dots else processor.level
    return (level if code.portable else None) or processor


def render(code: ir.Kernel | ir.Library, processor: Processor, names: bool = False) -> str:
    """Return the module of a kernel or of a library; with `names`, labels name their loops.

    The object code is the same with and without names.
    """
    module = Module(processor, names=names)
    legal = legalise(code.functions, primitives(processor))
    alone = isinstance(code, ir.Library)  # of a kernel, only its entry is exported
    functions = [_function(module, f, "" if alone and f.public else "internal ") for f in legal]
    if isinstance(code, ir.Kernel):
        functions.append(_entry(code, processor.is_wasm))
    return _module(module, functions, {f.name for f in legal})


def _module(module: Module, functions: list[str], own: set[str]) -> str:
    for name in own:
        module.declarations.pop(symbol(name), None)
    bits = 8 * module.processor.vector_bytes  # widest vector that LLVM may use
    attributes = (
        f'attributes {_OPTIMISED} = {{ nounwind "prefer-vector-width"="{bits}" '
        f'"min-legal-vector-width"="{bits}" }}'
    )
    body = "\n\n".join(functions)
    if f" {_QUICK} {{" in body:
        attributes += f"\nattributes {_QUICK} = {{ nounwind noinline optnone }}"
    zeros = [_ZEROS] if ZERO in body else []
    return "\n\n".join([*zeros, body, module.text(), attributes]) + "\n"


def is_quick(text: str) -> bool:
    """Whether all functions of a module are compiled without optimisation."""
    return f" {_OPTIMISED} {{" not in text


def _function(module: Module, function: ir.Function, linkage: str) -> str:
    steps = Steps(module)
    parameters = []
    for number, parameter in enumerate(function.parameters):
        name = f"%a{number}"
        if isinstance(parameter, ir.Pointer):
            steps.values.buffers[parameter.name] = Buffer(name, parameter.dtype)
            parameters.append(f"ptr {'' if parameter.alias else 'noalias '}{name}")
        else:
            steps.values.names[parameter.name] = name
            kind = type_text(parameter.type.dtype, parameter.type.lanes)
            parameters.append(f"{kind} {name}")
    steps.run(function.body)
    result = "void" if function.result is None else type_text(function.result.dtype)
    if not steps.ended:
        if function.result is not None:
            raise InternalError(f"'{function.name}' ends without a result")
        steps.emitter.write("ret void")
    head = f"define {linkage}{result} {symbol(function.name)}({', '.join(parameters)})"
    attributes = _QUICK if function.quick else _OPTIMISED
    return f"{head} {attributes} {{\n{steps.emitter.text()}\n}}"


def _entry(kernel: ir.Kernel, is_wasm: bool) -> str:
    """Return the exported function, which unpacks the argument block and calls `main`."""
    lines, arguments = [], []
    taken = "ptr %arguments, i64 %start, i64 %stop, ptr %scratch"
    if is_wasm:
        taken = "i64 %block, i64 %start, i64 %stop, i64 %room"
        for name, word in (("arguments", "block"), ("scratch", "room")):
            lines.append(f"  %{name} = inttoptr i64 %{word} to ptr")
    kinds = ["ptr"] * len(kernel.operands) + ["i64"] * len(kernel.sizes)
    for slot, kind in enumerate(kinds):
        lines.append(f"  %p{slot} = getelementptr i64, ptr %arguments, i64 {slot}")
        lines.append(f"  %v{slot} = load {kind}, ptr %p{slot}, align 8")
        arguments.append(f"{kind} %v{slot}")
    arguments += ["i64 %start", "i64 %stop", "ptr %scratch"]
    head = f"define void {symbol(kernel.name)}({taken})"
    call = f"  tail call void {symbol(kernel.main.name)}({', '.join(arguments)})"
    return "\n".join([f"{head} {_OPTIMISED} {{", *lines, call, "  ret void", "}"])
