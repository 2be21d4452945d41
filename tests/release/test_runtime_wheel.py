"""Promise: `anydim-runtime`, with numpy alone, runs saved models and says what it lacks."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy
import pytest

import anydim as ad
from release.runtime_wheel import COMPILER, ROOT, SOURCE, modules, tomllib, write
from tests.unit.deploy.kinds import KINDS
from tests.unit.serving.language_models.tiny_models import write_folder

SCRIPT = """
import importlib.util, sys
import numpy, anydim
assert anydim.__file__.startswith(sys.prefix), anydim.__file__
for name in ("llvmlite", "onnx", "rich", "click", "ml_dtypes"):
    assert importlib.util.find_spec(name) is None, name
model, cases = anydim.load(sys.argv[1]), numpy.load(sys.argv[2])
for number in range(int(cases["count"])):
    inputs = {n.split("/")[2]: cases[n] for n in cases if n.startswith(f"{number}/in/")}
    for name, array in model(**inputs).items():
        assert array.tobytes() == cases[f"{number}/out/{name}"].tobytes()
assert model.plan(n=3).launches and model.explain(details=True) and str(model.memory)
print(anydim.inspect(sys.argv[1]).name)
for name in ("compile", "define", "Builder"):
    try:
        getattr(anydim, name)
    except anydim.UserError as error:
        print(error)
"""


def test_the_same_tree_gives_the_same_wheel(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a"), write(tmp_path / "b")
    assert one.name == f"anydim_runtime-{ad.__version__}-py3-none-any.whl"
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as wheel:
        assert wheel.testzip() is None
        names = wheel.namelist()
        metadata = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert sum(name.endswith(".py") for name in names) == len(modules())
    head = email.message_from_string(metadata)
    required = head.get_all("Requires-Dist", [])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {"cli": ["click", "rich"]}
    packages = project["optional-dependencies"]["serve"]
    extras["serve"] = [*extras["cli"], *(each.split(">")[0] for each in packages)]
    extras["lm"] = ["tokenizers", "jinja2"]
    assert required[0].split(">")[0] == "numpy" and len(required) == 1 + sum(
        map(len, extras.values())
    )
    for extra, wanted in extras.items():
        found = [each.split(">")[0] for each in required if f"extra == '{extra}'" in each]
        assert found == wanted
    assert "anydim/serving/server/page.html" in names
    assert sorted([*head.get_all("Classifier", []), COMPILER]) == sorted(project["classifiers"])
    assert head["Keywords"].split(",") and head["License-Expression"] == "Apache-2.0"
    assert head.get_payload().startswith("# anydim-runtime")


def test_wheels_take_what_the_compiler_needs_alone() -> None:
    """Not the whole of what tests need; objects are made before the wheel that ships them."""
    command = ["make", "--dry-run", "--always-make", "wheels"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "[test" not in done.stdout and ".venv/" not in done.stdout
    order = [
        next(number for number, line in enumerate(lines) if part in line)
        for part in ("-m venv", " -e .", "release.shipped", "wheel --no-deps", "runtime_wheel")
    ]
    assert order == sorted(order)


@pytest.mark.slow
def test_a_fresh_environment_runs_saved_models(tmp_path: Path) -> None:
    """Nothing is fetched: the environment sees this one's numpy through a link."""
    kind = KINDS["encoder"]
    model, cases = ad.compile(kind.build()), list(kind.inputs())
    model.save(tmp_path / "encoder.anydim")
    arrays = {}
    for number, inputs in enumerate(cases):
        arrays |= {f"{number}/in/{key}": value for key, value in inputs.items()}
        arrays |= {f"{number}/out/{key}": value for key, value in model(**inputs).items()}
    numpy.savez(tmp_path / "cases.npz", count=len(cases), **arrays)
    python = environment(tmp_path / "empty", write(tmp_path))
    done = subprocess.run(
        [python, "-c", SCRIPT, "encoder.anydim", "cases.npz"], cwd=tmp_path, env={},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    name, *errors = done.stdout.splitlines()
    assert name == "encoder"
    for missing, problem, hint in zip(("compile", "define", "Builder"), errors[::2], errors[1::2]):
        assert problem == f"anydim.{missing} needs the compiler, which is not in anydim-runtime"
        assert "pip install anydim" in hint


LANGUAGE = """
import importlib.util, anydim
assert importlib.util.find_spec("llvmlite") is None
with anydim.language_model("tiny.anydim", threads=1) as lm:
    print(lm.generate("the quick", 8).read(), end="")
    print(lm.chat([{"role": "user", "content": "a"}], 8).read())
try:
    anydim.language_model("tiny")
except anydim.MissingError as error:
    print(error.problem)
"""


@pytest.mark.slow
def test_a_fresh_environment_runs_saved_language_models(tmp_path: Path) -> None:
    with ad.language_model(write_folder(tmp_path / "tiny"), threads=1) as lm:
        lm.save(tmp_path / "tiny.anydim")
        text = lm.generate("the quick", 8).read()
        text += lm.chat([{"role": "user", "content": "a"}], 8).read()
    names = ("numpy", "tokenizers", "jinja2", "markupsafe")
    python = environment(tmp_path / "empty", write(tmp_path), names)
    done = subprocess.run(
        [python, "-c", LANGUAGE], cwd=tmp_path, env={}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    problem = (
        "a language model that is not saved needs the compiler, which is not in anydim-runtime"
    )
    assert done.stdout == f"{text}\n{problem}\n"


def environment(folder: Path, wheel: Path, names: Sequence[str] = ("numpy",)) -> str:
    """The interpreter of a virtual environment with the wheel and packages of this one."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    install = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet",
               "--target", str(site), str(wheel)]  # fmt: skip
    subprocess.run(install, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    for name in names:
        for path in Path(numpy.__file__).parents[1].glob(f"{name}*"):
            (site / path.name).symlink_to(path)
    return str(folder / "bin" / "python")


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    for path in Path(numpy.__file__).parents[1].glob("numpy*"):
        (tmp_path / path.name).symlink_to(path)
    script = (
        "import anydim\ntry: anydim.compile(b'')\nexcept anydim.MissingError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), str(SOURCE)])}, timeout=60,
    )  # fmt: skip
    assert "llvmlite, which is not installed\n  pip install llvmlite" in done.stdout
