"""A compiled model -> a folder of C that a program without Python is built with."""

from __future__ import annotations

import os
from pathlib import Path

from anydim.base.errors import OptionError
from anydim.deploy.export.files import Exported, texts
from anydim.deploy.export.naming import prefixed, program_name
from anydim.deploy.export.weights import weights_of
from anydim.native.build import Assembled, modules
from anydim.targets.target import Source, Target


def export(folder: str | os.PathLike[str], name: str, made: Assembled, code: Target) -> None:
    """Write a program: as C text where the target is C, else as objects for its processor.

    Code of an earlier export to the folder goes. Raises OptionError for a program that is not
    straight, a name that C does not take, or a folder that cannot be written.
    """
    signature = made.program.signature
    if made.program.straight is None:
        raise OptionError(
            f"{signature.name} has parts that only its data decides, and cannot be exported to C",
            "models without branches, loops and sizes that data finds can",
        )
    called = program_name(name, signature.name)
    generated, interface = modules(made)
    sources = code.sources(prefixed(generated, called), code.processor)
    if code.name == "c":
        files = {f"code/{each}.c": _text(source).encode() for each, source in sources.items()}
        objects: list[str] = []
    else:
        compiled = code.compile(sources).code
        files = {f"code/{each}.o": data for each, data in compiled.items()}
        objects = list(files)
    if interface.asked:
        raise OptionError(
            f"{signature.name} has a dim that no input tells, and cannot be exported to C",
            f"give it an input with an axis of size '{interface.asked[0][0]}'",
        )
    ((_, constants),) = interface.tables
    weights = weights_of(constants, made.arrays)
    program = Exported(called, signature, interface, weights, code.processor, objects)
    files |= {file: text.encode() for file, text in texts(program).items()}
    files[f"{called}.weights"] = weights.head + weights.content
    try:
        _write(Path(folder), files)
    except OSError as error:
        reason = error.strerror or error
        raise OptionError(f"{os.fspath(folder)} cannot be written: {reason}") from None


def _text(source: Source) -> str:
    """Generated text; that it has names that nothing uses is no matter of whoever compiles it."""
    kinds = ("unused-parameter", "unused-variable", "unused-function", "parentheses", "psabi")
    quiet = [f'#pragma GCC diagnostic ignored "-W{kind}"' for kind in kinds]
    return "\n".join([*quiet, "", source.text()])


def _write(folder: Path, files: dict[str, bytes]) -> None:
    code = folder / "code"
    code.mkdir(parents=True, exist_ok=True)
    for old in (*code.glob("*.c"), *code.glob("*.o"), *folder.glob("*.o"), *folder.glob("*.a")):
        old.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
