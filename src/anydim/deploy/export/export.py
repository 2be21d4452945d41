"""Exports a compiled model as a folder of C sources or objects."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from anydim.base.errors import OptionError
from anydim.base.text import quote_list
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.native.build import Assembled, modules
from anydim.compiler.native.invoke import invoke_code
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Source, Target
from anydim.deploy.export.binding import Binding, binding_of
from anydim.deploy.export.exported import Exported
from anydim.deploy.export.files import texts
from anydim.deploy.export.language import Language
from anydim.deploy.export.naming import prefix_functions, program_name
from anydim.deploy.export.tables import constant_names
from anydim.deploy.export.weights import weights_of
from anydim.runtime.interface import Interface
from anydim.runtime.program.program import Program
from anydim.sizes import LARGEST

_FIRST_LINE = b"# Builds the example, and lib"  # of the Makefile


def export(
    folder: str | os.PathLike[str], name: str, made: Assembled, code: Target,
    language: Language | None = None,
) -> None:  # fmt: skip
    """Write a program: texts if the target exports them, as C does, else objects for its processor.

    `language` adds functions over tokens. Deletes the code of an earlier export to the folder.
    Raises OptionError for a dim that no input determines, a name that is no C identifier, or a
    folder that cannot be written or holds other files.
    """
    model = made.program.signature.name if language is None else language.name
    called = program_name(name, model)
    program, generated = prepare(called, made, code.processor)
    sources = code.sources(generated, code.processor)
    if code.export_suffix:
        files = {
            f"code/{each}{code.export_suffix}": _text(source).encode()
            for each, source in sources.items()
        }
    else:
        compiled = code.compile(sources).code
        files = {f"code/{each}.o": data for each, data in compiled.items()}
        program = replace(program, objects=list(files))
    files |= {file: text.encode() for file, text in texts(program, language).items()}
    files[f"{called}.weights"] = program.weights.head + program.weights.content
    try:
        _write(Path(folder), called, files)
    except OSError as error:
        reason = error.strerror or error
        raise OptionError(f"{os.fspath(folder)} cannot be written: {reason}") from None


def prepare(
    called: str, made: Assembled, processor: Processor
) -> tuple[Exported, list[Kernel | Library]]:
    """Return the record of a program, without objects, and its modules.

    `called` begins the names of public functions. Raises OptionError for a dim that no input
    determines.
    """
    signature = made.program.signature
    every, interface = modules(_in_arenas(made))
    if interface.requested_dims:
        raise OptionError(
            f"{signature.name} has a dim that no input determines, and cannot be exported",
            f"give it an input with an axis of size '{interface.requested_dims[0][0]}'",
        )
    binding = _binding(made.program, interface)
    own = [part for part in every if part != invoke_code()]  # only Python calls it
    generated = own if binding.code is None else [*own, binding.code]
    weights = weights_of(constant_names(interface), made.arrays)
    threads = made.program.threads
    program = Exported(called, signature, interface, binding, weights, processor, threads)
    return program, prefix_functions(generated, called)


def _binding(program: Program, interface: Interface) -> Binding:
    if program.straight is None:
        return binding_of(program, [name for _, name in interface.updates])
    checks = tuple(each.check for each in interface.failures[: interface.bound] if each.check)
    outputs = tuple(first for _, _, first in interface.results)
    return Binding(None, checks, interface.words, interface.shapes, outputs, 0, True)


def _in_arenas(made: Assembled) -> Assembled:
    """Move all blocks of setups to the arenas of calls: the program runs one call at a time."""
    segment = made.program.straight
    if segment is None:
        return made
    setups = tuple(replace(setup, least=LARGEST) for setup in segment.setups)
    program = Program.of(
        replace(segment, setups=setups), made.program.constants, made.program.recipes
    )
    return replace(made, program=program) if setups else made


def _text(source: Source) -> str:
    """Generated C text; suppresses warnings about unused names."""
    kinds = (
        "unused-parameter", "unused-variable", "unused-but-set-variable", "unused-function",
        "parentheses", "psabi",
    )  # fmt: skip
    quiet = [f'#pragma GCC diagnostic ignored "-W{kind}"' for kind in kinds]
    return "\n".join([*quiet, "", source.text()])


def _write(folder: Path, called: str, files: dict[str, bytes]) -> None:
    """Write the files over those of an earlier export; other files are not overwritten."""
    makefile = folder / "Makefile"
    earlier = makefile.is_file() and makefile.read_bytes().startswith(_FIRST_LINE)
    others = [name for name in files if not earlier and (folder / name).exists()]
    if others:
        raise OptionError(
            f"{folder} already holds {quote_list(others[:3])}, which no export wrote",
            "give a folder that is empty, or one of an earlier export",
        )
    (folder / "code").mkdir(parents=True, exist_ok=True)
    objects = (f"{called}.o", f"{called}_sequence.[cho]", "example.o", f"lib{called}.a")
    for made in (f"code/{called}_*.[co]", *objects):
        for old in folder.glob(made):
            old.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
