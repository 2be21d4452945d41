"""Exports a compiled model as a folder for browsers and node."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from anydim.base.errors import OptionError
from anydim.base.text import quote_list
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.native.build import Assembled
from anydim.compiler.targets.processor import WASM, describe_processor
from anydim.compiler.targets.target import Source, Target
from anydim.deploy.export.export import prepare
from anydim.deploy.export.exported import Exported
from anydim.deploy.export.language import Language
from anydim.deploy.web.describe import description, entries, functions, pool_functions, ranges
from anydim.deploy.web.link import first_pages, link, linker
from anydim.runtime.signature import TensorSpec

_PREFIX = "m"  # of symbols
_SLOT = re.compile(r"@(\w+)@")
_PROCESSORS = {"": WASM, "-relaxed": f"{WASM}+relaxed"}  # by the ends of the modules' names
_WITHOUT_ATOMICS = b"shared-mem"  # in objects from which LLVM removed them, for one thread
_BLOCKS = ("anydim_take", "anydim_give", "anydim_copy", "anydim_fill")  # of `runtime.ll`
_ARRAYS = {
    "float64": "Float64Array", "float32": "Float32Array", "float16": "Uint16Array",
    "bfloat16": "Uint16Array", "int64": "BigInt64Array", "uint64": "BigUint64Array",
    "int32": "Int32Array", "uint32": "Uint32Array", "int16": "Int16Array",
    "uint16": "Uint16Array", "int8": "Int8Array",
}  # fmt: skip
_GIVEN = {  # data of an input, besides the array of its type
    **dict.fromkeys(_ARRAYS.values(), " | number[]"), "Uint8Array": " | number[]",
    **dict.fromkeys(("BigInt64Array", "BigUint64Array"), " | (bigint | number)[]"),
    "Uint16Array": "", "bool": " | (boolean | number)[]",
}  # fmt: skip
_PACKAGE = {"type": "module", "main": "model.js", "types": "model.d.ts"}  # for node and bundlers
_OF_LANGUAGE = ("tokenizer.js", "worker.js")
_MARK = re.compile(rb"/\* [^\n]* made by anydim\. Runs in browsers")


def export_web(
    folder: str | os.PathLike[str], name: str, made: Assembled, code: Target,
    language: Language | None = None,
) -> None:  # fmt: skip
    """Write modules, weights, JavaScript, its types and a page over those of an earlier export.

    A program of several threads has modules for one thread besides. Raises OptionError for a dim
    that no input determines, or a folder that cannot be written or holds other files of these
    names; MissingError without a linker.
    """
    linker()
    signature = made.program.signature
    program, generated = prepare(_PREFIX, made, code.processor)
    called = _line(name or (signature.name if language is None else language.name))
    written, pages = _modules(program, generated, code)
    modules = sorted(written)
    if language is not None and language.tokenizer is not None:
        written["tokenizer.json"] = language.tokenizer
    about = description(program, called, written, pages, language)
    written["model.weights"] = program.weights.head + program.weights.content
    texts = _texts(program, called, about, modules, language is not None)
    written |= {file: text.encode() for file, text in texts.items()}
    path = Path(folder)
    try:
        _refuse_others(path, written)
        path.mkdir(parents=True, exist_ok=True)
        for file, data in written.items():
            (path / file).write_bytes(data)
    except OSError as error:
        reason = error.strerror or error
        raise OptionError(f"{os.fspath(folder)} cannot be written: {reason}") from None


def _modules(
    program: Exported, generated: Sequence[Kernel | Library], code: Target
) -> tuple[dict[str, bytes], int]:
    """Return the modules by file, and the pages of memory with which those of threads begin.

    Modules for the same processor have the same kernels, so results do not depend on threads.
    """
    called = dict.fromkeys((*functions(program).values(), *entries(program), "anydim_sum"))
    exports = [*called, *(() if program.straight else _BLOCKS)]
    found, shared = {}, {}
    for end, processor in _PROCESSORS.items():
        objects = _objects(generated, code, processor, "runtime")
        found[f"model{end}.wasm"] = link(objects, exports)
        if program.threads > 1:
            changed = {name for name, data in objects.items() if _WITHOUT_ATOMICS in data}
            rest = (f"{processor}+threads", "threads", changed.__contains__)
            shared[f"model-threads{end}.wasm"] = {**objects, **_objects(generated, code, *rest)}
    pages = max(map(first_pages, shared.values()), default=0)
    exports += [*pool_functions(program).values()]
    return found | {name: link(each, exports, pages) for name, each in shared.items()}, pages


def _objects(
    generated: Sequence[Kernel | Library], code: Target, processor: str, own: str,
    wanted: Callable[[str], bool] = lambda name: True,
) -> Mapping[str, bytes]:  # fmt: skip
    """Return the objects of the wanted sources for a processor, and of the template `own`."""
    target = replace(code, processor=describe_processor(processor))
    sources = target.sources(generated, target.processor)
    chosen = {name: source for name, source in sources.items() if wanted(name)}
    return target.compile({**chosen, own: Source.of(_template(f"{own}.ll"))}).code


def _texts(
    program: Exported, called: str, about: str, modules: Sequence[str], of_language: bool
) -> dict[str, str]:
    signature = program.signature
    dims = ", ".join(map(str, signature.box.dims)) or "none"
    parts = {"modules": _addresses(modules), "threads": _template("threads.js.in")}
    values = {
        "name": called.replace("*/", "* /"),
        "title": html.escape(called),
        "description": about,
        "machine": _fill("machine.js.in", parts),
        "threads": str(program.threads),
        "inputs": _types(signature.inputs, _GIVEN),
        "outputs": _types(signature.outputs, {}),
        "dims": dims.replace("*/", "* /"),
        "ranges": json.dumps(ranges(program)).replace("</", "<\\/"),
    }
    kind = "language/" if of_language else ""
    names = ("model.js", "model.d.ts", "index.html", *(_OF_LANGUAGE if kind else ()))
    package = {"package.json": json.dumps(_PACKAGE, indent=2) + "\n"}
    return package | {name: _fill(f"{kind}{name}.in", values) for name in names}


def _addresses(modules: Sequence[str]) -> str:
    """Return the fields of an object, with literals that bundlers find."""
    return "\n".join(f'  "{name}": new URL("{name}", import.meta.url),' for name in modules)


def _types(specs: Sequence[TensorSpec], more: Mapping[str, str]) -> str:
    """Return the fields of an interface, each with its shape as a comment; `more` are other types
    of an array's data."""
    lines = []
    for spec in specs:
        array = _ARRAYS.get(str(spec.dtype), "Uint8Array")
        array += more.get("bool" if str(spec.dtype) == "bool" else array, "")
        shape = _line(f"{spec.dtype}[{', '.join(map(str, spec.shape))}]").replace("*/", "* /")
        lines.append(f"  /** {shape} */\n  {json.dumps(spec.key)}: Tensor<{array}>;")
    return "\n".join(lines)


def _line(text: str) -> str:
    return re.sub(r"[^ -~]", "?", text)


def _template(name: str) -> str:
    return files("anydim.deploy.web").joinpath("templates", name).read_text("utf-8")


def _fill(template: str, values: Mapping[str, str]) -> str:
    return _SLOT.sub(lambda found: values[found[1]], _template(template))


def _refuse_others(folder: Path, written: Mapping[str, bytes]) -> None:
    """Raise OptionError if files would be overwritten that no export wrote."""
    script = folder / "model.js"
    if script.is_file() and _MARK.match(script.read_bytes()[:4096]):
        return
    others = [name for name in written if (folder / name).exists()]
    if others:
        raise OptionError(
            f"{folder} already holds {quote_list(others[:3])}, which no export wrote",
            "give a folder that is empty, or one of an earlier export",
        )
