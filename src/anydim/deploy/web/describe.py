"""The description of a program in `model.js`: its tensors, slots, errors and weights, as JSON."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from anydim.compiler.native.blocks import ARENA as ARENA_BLOCK
from anydim.compiler.native.emit import BIND
from anydim.compiler.native.threads import POOL_WORDS, STOP, WORKER
from anydim.deploy.export.exported import Exported
from anydim.deploy.export.language import CHUNK, Language
from anydim.deploy.export.naming import symbol
from anydim.deploy.export.tables import failures_of
from anydim.deploy.web.link import MARK_DIGITS, STACK
from anydim.runtime import context
from anydim.runtime.interface import Interface
from anydim.runtime.layout import ARENA, ARENA_BYTES, EMPTY, PARALLEL, POINTERS, POOL
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Atom, Factor, Size


def entries(program: Exported) -> tuple[str, ...]:
    """Return the symbols of the table of kernels, in order."""
    return tuple(symbol(program.name, k) for _, names in program.interface.entries for k in names)


def functions(program: Exported) -> dict[str, str]:
    """Return the symbols that `model.js` calls, by role."""
    roles = {"bind": BIND, "run": program.interface.functions["run"]}
    if not program.straight:
        roles["scratch"] = ARENA_BLOCK
    return {role: symbol(program.name, name) for role, name in roles.items()}


def pool_functions(program: Exported) -> dict[str, str]:
    """Return the symbols of a module of threads, by role; first those that a pool calls."""
    own = ("lock", "unlock", "wait", "broadcast", "yield")
    roles = {"worker": symbol(program.name, WORKER), "stop": symbol(program.name, STOP)}
    return {**{role: f"anydim_{role}" for role in own}, **roles}


def description(
    program: Exported,
    called: str,
    files: Mapping[str, bytes],
    pages: int = 0,
    language: Language | None = None,
) -> str:
    """Return the description as arguments of `described` in JavaScript: a text and its CRC-32.

    The text is JSON. `files` are those whose bytes `load` compares with the exported ones. `pages`
    of memory are there at first if threads share it.
    """
    text = json.dumps(_content(program, called, files, pages, language), separators=(",", ":"))
    literal = text.replace("\\", "\\\\").replace("'", "\\'").replace("</", "<\\/")
    return f"'{literal}', {zlib.crc32(text.encode())}"


def ranges(program: Exported) -> list[list[Any]]:
    """Return name, least and largest size of each dim."""
    return [[dim.name, dim.lo, dim.hi] for dim in program.signature.box.dims]


def _content(
    program: Exported,
    called: str,
    files: Mapping[str, bytes],
    pages: int,
    language: Language | None,
) -> dict[str, Any]:
    interface, signature = program.interface, program.signature
    base = 0 if program.straight else interface.words
    inputs, word = [], base + program.binding.shapes
    for spec in signature.inputs:
        inputs.append({**_tensor(spec), "word": word, "sizes": list(map(_terms, spec.shape))})
        word += spec.rank
    outputs = []
    for spec, bound, (_, _, made) in zip(
        signature.outputs, program.binding.outputs, interface.results
    ):
        known = bound is not None
        outputs.append({**_tensor(spec), "word": made if bound is None else base + bound,
                        "known": known})  # fmt: skip
    found = {
        "name": called,
        "dims": ranges(program),
        "inputs": inputs,
        "outputs": outputs,
        "words": interface.words + (0 if program.straight else program.binding.words),
        "bind": base,
        "arenaBytes": base + ARENA_BYTES,
        "checks": len(program.binding.checks),
        "errors": failures_of(program),
        "functions": functions(program),
        "kernels": entries(program),
        "constants": program.weights.offsets,
        "tables": _tables(interface),
        "weights": {"bytes": program.weights.bytes, "head": program.weights.head.hex()},
        "files": {name: _file(name, data) for name, data in files.items()},
        "threads": _threads(program, pages) if program.threads > 1 else None,
        "straight": _straight(interface) if program.straight else None,
        "regions": None if program.straight else _regions(program, base),
    }
    if language is not None:
        found["language"] = _language(program, language)
    return found


def _file(name: str, data: bytes) -> list[Any]:
    """Return length and CRC-32 of a file, and the mark of a module."""
    mark = [data[-MARK_DIGITS:].decode()] if name.endswith(".wasm") else []
    return [len(data), zlib.crc32(data), *mark]


def _language(program: Exported, language: Language) -> dict[str, Any]:
    names = {each.key: number for number, each in enumerate(program.signature.outputs)}
    roles = ("tokens", "picks", "states")
    table = language.table
    return {
        "vocabulary": language.vocabulary, "context": language.context, "room": language.room,
        "most": language.most, "chunk": CHUNK, "strips": language.strips, "depth": language.depth,
        "bytes": language.width, "caches": [each.input for each in language.caches],
        "dims": language.dims,
        "inputs": {**dict(zip(roles, language.inputs)), "rows": table.rows, "sums": table.sums},
        "logits": names[language.logits], "row": list(map(_terms, language.row)),
        "sums": list(map(_terms, language.sums)), "step": _terms(language.step),
        "stop": language.stop, "begin": language.begin,
        "tokenizer": language.tokenizer is not None,
        "chat": language.chat, "chatProblem": language.chat_problem,
    }  # fmt: skip


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {
        "name": spec.key, "dtype": str(spec.dtype), "bytes": spec.dtype.bytes,
        "shape": [str(size) for size in spec.shape],
    }  # fmt: skip


def _terms(size: Size) -> list[list[Any]]:
    """Return the terms of a size: a count and factors, dims or a function's name and sizes."""
    return [[count, *map(_factor, term)] for term, count in size.coefficients.items()]


def _factor(factor: Factor) -> Any:
    if not isinstance(factor, Atom):
        return factor
    return [factor.function, *map(_terms, factor.arguments)]


def _tables(interface: Interface) -> list[tuple[int, int, int]]:
    """Return slots of addresses of tables, whether they have kernels, and their first element."""
    rows = []
    for kernels, tables in enumerate((interface.tables, interface.entries)):
        first = 0
        for word, names in tables:
            rows.append((word, kernels, first))
            first += len(names)
    return rows


def _threads(program: Exported, pages: int) -> dict[str, Any]:
    pool, parallel = (POOL, PARALLEL) if program.straight else (context.POOL, None)
    return {
        "most": program.threads, "pages": pages, "functions": pool_functions(program),
        "words": POOL_WORDS, "stack": STACK, "pool": pool, "parallel": parallel,
    }  # fmt: skip


def _straight(interface: Interface) -> dict[str, Any]:
    return {
        "arena": ARENA, "pointers": POINTERS,
        "empties": [each.block + EMPTY for each in interface.setups],
    }  # fmt: skip


def _regions(program: Exported, base: int) -> dict[str, Any]:
    interface = program.interface
    first = sum(len(names) for _, names in interface.tables)
    return {
        "take": context.MALLOC, "give": context.FREE, "copy": context.COPY, "fill": context.FILL,
        "live": context.LIVE, "stateEnd": context.REFUSED + 1, "allowed": context.ALLOWED,
        "bins": context.BINS, "binsEnd": context.WORDS, "peak": context.PEAK,
        "known": program.binding.arena_known, "scratch": base + program.binding.scratch,
        "inputs": interface.inputs, "sizes": interface.shapes,
        "numbers": interface.numbers,
        "constants": [[word, n] for n, (word, _) in enumerate(interface.constants, first)],
        "results": [data for data, _, _ in interface.results],
    }  # fmt: skip
