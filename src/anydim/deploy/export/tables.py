"""The tables of an exported program's source, and the numbers of its slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anydim.compiler.native.threads import POOL_WORDS
from anydim.deploy.export.exported import Exported
from anydim.deploy.export.literals import string
from anydim.deploy.export.naming import symbol
from anydim.deploy.export.texts import failure_text
from anydim.runtime import context
from anydim.runtime.failures import Failure
from anydim.runtime.interface import Interface
from anydim.runtime.layout import ARENA, ARENA_BYTES, EMPTY, PARALLEL, POINTERS, POOL


def tables(program: Exported) -> dict[str, str]:
    """Values for the slots of templates."""
    interface, binding, name = program.interface, program.binding, program.name
    failures = failures_of(program)
    named = [symbol(name, kernel) for _, kernels in interface.entries for kernel in kernels]
    filled = list(_table_slots(interface))
    numbers = {
        "words": interface.words + (0 if program.straight else binding.words),
        "bind_word": _base(program), "word_arena_bytes": _base(program) + ARENA_BYTES,
        "word_shapes": _base(program) + binding.shapes, "check_count": len(binding.checks),
        "table_count": len(filled), "text_count": len(failures),
        "weights_bytes": program.weights.bytes,
        **{f"pool_{name}": word for name, word in POOL_WORDS.items()},
        **(_straight(interface) if program.straight else _regions(program)),
    }  # fmt: skip
    return {
        **{slot: str(number) for slot, number in numbers.items()},
        "weights_head": ", ".join(map(str, program.weights.head)),
        "offsets": _rows(program.weights.offsets, "0"),
        "tensors": _rows(_tensors(program), "{0, 1, 0, 1}"),
        "texts": _rows(map(string, failures), "NULL"),
        "kernels": "".join(f"kernel {name};\n" for name in dict.fromkeys(named)).rstrip("\n"),
        "entries": _rows(named, "NULL"),
        "tables": _rows(filled, "{0, 0, 0}"),
        "empties": _rows((each.block + EMPTY for each in interface.setups), "0"),
        "results": _rows((data for data, _, _ in interface.results), "0"),
        "updates": _rows(_updates(program), "{0, 0}"),
        "numbers": "\n".join(f"  self->words[{n}] = {value};" for n, value in interface.numbers),
        "constants": "\n".join(_constants(interface)),
    }


def constant_names(interface: Interface) -> tuple[str, ...]:
    """The constants in the order of the weights: those of the tables, then the others."""
    tables = (name for _, names in interface.tables for name in names)
    return (*tables, *(name for _, name in interface.constants))


def failures_of(program: Exported) -> list[str | None]:
    """The texts of all errors; None: the general one for a lack of memory."""
    interface, signature = program.interface, program.signature
    found = interface.failures[:-1]  # the last one is a lack of memory
    if not program.straight:
        checks = [Failure("check", signature, check=check) for check in program.binding.checks]
        found = (*checks, *interface.failures)
    return [None if each.kind == "memory" else failure_text(each, signature.name) for each in found]


def _base(program: Exported) -> int:
    """The first slot of the binding."""
    return 0 if program.straight else program.interface.words


def _straight(interface: Interface) -> dict[str, int]:
    return {
        "word_arena": ARENA, "word_parallel": PARALLEL, "word_pool": POOL,
        "word_pointers": POINTERS, "setup_count": len(interface.setups),
    }  # fmt: skip


def _regions(program: Exported) -> dict[str, int]:
    interface, binding = program.interface, program.binding
    return {
        "word_take": context.MALLOC, "word_give": context.FREE, "word_copy": context.COPY,
        "word_fill": context.FILL, "word_pool": context.POOL, "word_live": context.LIVE,
        "word_peak": context.PEAK, "word_allowed": context.ALLOWED,
        "word_state_end": context.REFUSED + 1, "word_bins": context.BINS,
        "bin_count": context.WORDS - context.BINS, "block_head": context.HEAD,
        "word_scratch": _base(program) + binding.scratch, "arena_known": int(binding.arena_known),
        "word_inputs": interface.inputs, "word_sizes": interface.shapes,
        "update_count": len(interface.updates),
    }  # fmt: skip


def _table_slots(interface: Interface) -> Iterator[str]:
    """Yield the slots of addresses of tables, as `struct table`."""
    for kernels, rows in enumerate((interface.tables, interface.entries)):
        first = 0
        for word, names in rows:
            yield f"{{{word}, {kernels}, {first}}}"
            first += len(names)


def _constants(interface: Interface) -> Iterator[str]:
    """Yield statements that set the slots of addresses of constants."""
    first = sum(len(names) for _, names in interface.tables)
    for number, (word, _) in enumerate(interface.constants, first):
        yield f"  self->words[{word}] = word_of(self->constants[{number}]);"


def _tensors(program: Exported) -> Iterator[str]:
    signature, binding, base = program.signature, program.binding, _base(program)
    slot = base + binding.shapes
    for spec in signature.inputs:
        yield f"{{{spec.rank}, {spec.dtype.bytes}, {slot}, 1}}"
        slot += spec.rank
    made = (first for _, _, first in program.interface.results)
    for spec, bound, first in zip(signature.outputs, binding.outputs, made):
        known = bound is not None
        at = first if bound is None else base + bound
        yield f"{{{spec.rank}, {spec.dtype.bytes}, {at}, {int(known)}}}"


def _updates(program: Exported) -> Iterator[str]:
    signature = program.signature
    made = [spec.name for spec in signature.outputs]
    read = [spec.name for spec in signature.inputs]
    for output, input in program.interface.updates:
        yield f"{{{made.index(output)}, {read.index(input)}}}"


def _rows(values: Iterable[object], empty: str) -> str:
    """Rows of an array initializer, with at least one element."""
    return ",\n".join(f"    {value}" for value in values) or f"    {empty}"
