"""Exports a compiled model as a folder of C sources or objects."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from anydim.base.errors import OptionError
from anydim.base.text import listed
from anydim.deploy.export.files import Exported, texts
from anydim.deploy.export.naming import prefixed, program_name
from anydim.deploy.export.weights import weights_of
from anydim.native.build import Assembled, modules
from anydim.native.invoke import invoke_code
from anydim.program.program import Program
from anydim.sizes import LARGEST
from anydim.targets.target import Source, Target

_FIRST_LINE = b"# Builds the example, and lib"  # of the Makefile


def export(folder: str | os.PathLike[str], name: str, made: Assembled, code: Target) -> None:
    """Write a program: texts if the target exports them, as C does, else objects for its processor.

    Deletes the code of an earlier export to the folder. Raises OptionError for a program that is
    not straight, a name that is no C identifier, or a folder that cannot be written or holds other
    files.
    """
    signature = made.program.signature
    if made.program.straight is None:
        raise OptionError(
            f"{signature.name} has data-dependent parts, and cannot be exported to C",
            "branches, loops, recursion and sizes by data cannot: model.save writes a file that "
            "ad.load runs without a compiler",
        )
    called = program_name(name, signature.name)
    every, interface = modules(_in_arenas(made))
    generated = [part for part in every if part != invoke_code()]  # only Python calls it
    sources = code.sources(prefixed(generated, called), code.processor)
    if code.export_suffix:
        files = {
            f"code/{each}{code.export_suffix}": _text(source).encode()
            for each, source in sources.items()
        }
        objects: list[str] = []
    else:
        compiled = code.compile(sources).code
        files = {f"code/{each}.o": data for each, data in compiled.items()}
        objects = list(files)
    if interface.requested_dims:
        raise OptionError(
            f"{signature.name} has a dim that no input determines, and cannot be exported to C",
            f"give it an input with an axis of size '{interface.requested_dims[0][0]}'",
        )
    ((_, constants),) = interface.tables
    weights = weights_of(constants, made.arrays)
    threads = made.program.threads
    program = Exported(called, signature, interface, weights, code.processor, threads, objects)
    files |= {file: text.encode() for file, text in texts(program).items()}
    files[f"{called}.weights"] = weights.head + weights.content
    try:
        _write(Path(folder), called, files)
    except OSError as error:
        reason = error.strerror or error
        raise OptionError(f"{os.fspath(folder)} cannot be written: {reason}") from None


def _in_arenas(made: Assembled) -> Assembled:
    """Move all blocks of setups to the arenas of calls: the program runs one call at a time."""
    segment = made.program.straight
    assert segment is not None
    setups = tuple(replace(setup, least=LARGEST) for setup in segment.setups)
    program = Program.of(
        replace(segment, setups=setups), made.program.constants, made.program.recipes
    )
    return replace(made, program=program) if setups else made


def _text(source: Source) -> str:
    """Generated C text; suppresses warnings about unused names."""
    kinds = ("unused-parameter", "unused-variable", "unused-function", "parentheses", "psabi")
    quiet = [f'#pragma GCC diagnostic ignored "-W{kind}"' for kind in kinds]
    return "\n".join([*quiet, "", source.text()])


def _write(folder: Path, called: str, files: dict[str, bytes]) -> None:
    """Write the files over those of an earlier export; other files are not overwritten."""
    makefile = folder / "Makefile"
    earlier = makefile.is_file() and makefile.read_bytes().startswith(_FIRST_LINE)
    others = [name for name in files if not earlier and (folder / name).exists()]
    if others:
        raise OptionError(
            f"{folder} already holds {listed(others[:3])}, which no export wrote",
            "give a folder that is empty, or one of an earlier export",
        )
    (folder / "code").mkdir(parents=True, exist_ok=True)
    for made in (f"code/{called}_*.[co]", f"{called}.o", "example.o", f"lib{called}.a"):
        for old in folder.glob(made):
            old.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
