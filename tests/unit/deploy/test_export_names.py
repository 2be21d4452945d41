"""Promise: a name that an export takes clashes with no name of the program's source or of C."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import anydim as ad
from anydim.deploy.export.naming import program_name
from tests.unit.deploy.test_export import CC
from tests.unit.deploy.test_export_text import assert_compiles, branching, straight

pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")

_HEADERS = "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"


def run_cc(text: str, *flags: str) -> str:
    """Output of the compiler for a text; the text is correct C."""
    command = [str(CC), "-std=c11", *flags, "-x", "c", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_accepted(name: str) -> bool:
    try:
        return program_name(name, "") == name
    except ad.OptionError:
        return False


@pytest.mark.parametrize("make", [branching, straight])
@pytest.mark.parametrize("file", ["mine.c", "example.c"])
def test_accepted_names_clash_with_none(
    make: Callable[..., ad.Builder], file: str, tmp_path: Path
) -> None:
    """Declare programs of all accepted words of the preprocessed source behind this source.

    Words with capitals are left out: macros differ between C libraries.
    """
    ad.compile(make("mine")).export(tmp_path, threads=2)
    text, here = _HEADERS + (tmp_path / file).read_text("utf-8"), f"-I{tmp_path}"
    plain, macros = run_cc(text, here, "-E", "-P"), run_cc(text, here, "-E", "-dM")
    values = set(re.findall(r"MINE_([A-Z_]+)", plain)) - {"INPUT_X", "INPUT_FLAG", "OUTPUT_Y"}
    functions = set(re.findall(r"mine_(\w+)\(", plain))
    words = {*re.findall(r"\w+", plain), *re.findall(r"#define (\w+)", macros)}
    behind = "|".join(functions | values)
    begun = (re.fullmatch(rf"(\w+?)_(?:{behind})", word) for word in words)
    words |= {found[1].lower() for found in begun if found}
    words = {word for word in words if word == word.lower() and word[:4] != "mine"}
    accepted = list({word.upper(): word for word in sorted(words) if is_accepted(word)}.values())
    assert len(accepted) > 30
    declared = [
        f"struct {name} {{ int x; }}; typedef struct {name} {name};"
        f"enum {{ {', '.join(f'{name.upper()}_{value}' for value in sorted(values))} }};"
        + "".join(f"void {name}_{function}(void);" for function in sorted(functions))
        for name in accepted
    ]
    run_cc("\n".join([text, *declared]), here, "-fsyntax-only", "-w")


@pytest.mark.parametrize("name", ["copy", "pool", "x", "has", "free", "run"])
def test_models_with_taken_names_get_others(name: str, tmp_path: Path) -> None:
    model = ad.compile(branching(name))
    model.export(tmp_path)
    assert (tmp_path / f"model_{name}.h").exists()
    assert_compiles(tmp_path)
    with pytest.raises(ad.OptionError, match="are taken"):
        model.export(tmp_path / "other", name)
