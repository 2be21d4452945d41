"""Promise: without a compiler, sessions and commands run saved models and say what they lack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

import numpy
import pytest

import anydim as ad
from release.runtime_wheel import write
from tests.unit.deploy.kinds import KINDS
from tests.unit.deploy.test_saved_strings import MODELS

Run = Callable[..., "subprocess.CompletedProcess[str]"]
CLI = ("click", "rich", "pygments", "markdown_it", "mdurl")
SERVE = (
    "starlette",
    "uvicorn",
    "httptools",
    "anyio",
    "h11",
    "idna",
    "typing_extensions",
    "sniffio",
)
AT = ("--at", "n=7")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked, numpy and the packages of the extra through links, a saved model."""
    folder = tmp_path_factory.mktemp("runtime")
    with zipfile.ZipFile(write(folder)) as wheel:
        wheel.extractall(folder / "plain")
    (folder / "cli").mkdir()
    for path in Path(numpy.__file__).parents[1].glob("numpy*"):
        (folder / "plain" / path.name).symlink_to(path)
    for name in CLI:
        found = find_spec(name)
        assert found is not None and found.origin is not None
        (folder / "cli" / name).symlink_to(Path(found.origin).parent)
    (folder / "serve").mkdir()
    for name in SERVE:
        found = find_spec(name)
        if found is not None and found.origin is not None:
            path = Path(found.origin)
            path = path.parent if path.name == "__init__.py" else path
            (folder / "serve" / path.name).symlink_to(path)
    kind = KINDS["encoder"]
    model = ad.compile(kind.build(), threads=2)
    model.save(folder / "encoder.anydim", ["aarch64", "native"])
    inputs = list(kind.inputs())[3]
    numpy.savez(folder / "in.npz", **inputs)
    numpy.savez(folder / "out.npz", **model(**inputs))
    (folder / "file.onnx").write_bytes(b"nothing")
    return folder


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Run:
    def started(*words: str, cli: bool = True) -> subprocess.CompletedProcess[str]:
        paths = [str(folder / "plain"), *([str(folder / "cli")] if cli else [])]
        env = {"PYTHONPATH": os.pathsep.join(paths), "ANYDIM_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.run(
            [sys.executable, "-S", *words], cwd=folder, env=env, capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip

    return started


SESSION = """
import json, sys, numpy, anydim.ort as ort
options = ort.SessionOptions()
options.intra_op_num_threads = int(sys.argv[1])
session = ort.InferenceSession("encoder.anydim", options)
given, expected = numpy.load("in.npz"), numpy.load("out.npz")
(got,) = session.run(["y"], {name: given[name] for name in given})
errors = []
for source in ("missing.onnx", "file.onnx", b"bytes"):
    try:
        ort.InferenceSession(source)
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")
loaded = {name.split(".")[0] for name in sys.modules}
print(json.dumps([got.tobytes() == expected["y"].tobytes(), errors,
                  sorted(loaded & {"onnx", "llvmlite", "click"})]))
"""


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("threads", [0, 1, 64])
def test_sessions(threads: int, run: Run) -> None:
    done = run("-c", SESSION, str(threads), cli=False)
    assert done.returncode == 0, done.stderr
    same, (missing, file, data), compilers = json.loads(done.stdout)
    assert same and compilers == []
    assert missing.startswith("NoSuchFile: ") and "missing.onnx" in missing
    for error in (file, data):
        assert error == (
            "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : this is no saved model, and"
            " anydim-runtime compiles none\n"
            '  save it where anydim is installed: anydim.compile("m.onnx").save("m.anydim")'
        )


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("words, said", [
    (["inspect", "encoder.anydim", "--verify"], "selected"),
    (["run", "encoder.anydim", "--input", "in.npz", "--threads", "1"], "on 1 core"),
    (["bench", "encoder.anydim", *AT, "--seconds", "0.01", "--rounds", "2"], "n=7"),
    (["plan", "encoder.anydim", *AT], "arena"),
    (["memory", "encoder.anydim"], "bytes"),
    (["explain", "encoder.anydim"], "code"),
    (["profile", "encoder.anydim", *AT], "a call"),
    (["devices"], "cpu:0"),
    (["cache"], "packed"),
    (["--help"], "inspect"),
])  # fmt: skip
def test_commands(words: list[str], said: str, run: Run) -> None:
    done = run("-m", "anydim", *words)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_run_writes_the_results(run: Run, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "y.npz"
    done = run("-m", "anydim", "run", "encoder.anydim", "--input", "in.npz", "--output", str(out))
    assert done.returncode == 0, done.stderr
    assert numpy.load(out)["y"].tobytes() == numpy.load(folder / "out.npz")["y"].tobytes()


COMPILER = "needs the compiler, which is not in anydim-runtime"


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("words, problem", [
    (["compile", "file.onnx", "-o", "x"], f"anydim compile {COMPILER}"),
    (["run", "file.onnx"], f"file.onnx, which is no saved model, {COMPILER}"),
    (["check", "encoder.anydim"], f"anydim check {COMPILER}"),
    (["bench", "file.onnx", *AT], f"anydim bench {COMPILER}"),
    (["run", "encoder.anydim", "--threads", "3", *AT], "threads is 3, and encoder.anydim was "
     "compiled for 2"),
])  # fmt: skip
def test_what_a_command_lacks(words: list[str], problem: str, run: Run) -> None:
    done = run("-m", "anydim", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {problem}\n  ")


def test_the_extra_is_named(run: Run) -> None:
    done = run("-m", "anydim", "serve", "encoder.anydim")
    assert done.returncode == 2
    assert done.stderr == (
        "error: the server needs the package uvicorn\n  pip install 'anydim-runtime[serve]'\n"
    )
    done = run("-m", "anydim", "inspect", "encoder.anydim", cli=False)
    assert done.returncode == 2
    assert done.stderr == (
        "error: the command line needs click; pip install 'anydim-runtime[cli]'\n"
    )


def test_serve_and_load(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    paths = os.pathsep.join(str(folder / name) for name in ("plain", "cli", "serve"))
    env = {"PYTHONPATH": paths, "ANYDIM_CACHE_DIR": str(tmp_path / "cache")}
    start = [sys.executable, "-S", "-m", "anydim"]
    done = subprocess.run([*start, "serve", "file.onnx", "--port", "0", "--no-grpc"], cwd=folder,
                          env=env, capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 2
    assert f"error: file.onnx, which is no saved model, {COMPILER}\n" in done.stderr
    server = subprocess.Popen(
        [*start, "serve", "encoder.anydim", "--port", "0", "--no-grpc"], cwd=folder, env=env,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stderr is not None
        lines = []
        for line in server.stderr:
            lines.append(json.loads(line))
            if lines[-1]["event"] == "ready":
                break
        url = lines[-1]["url"]
        ids, expected = (numpy.load(folder / name) for name in ("in.npz", "out.npz"))
        row = {"name": "ids", "datatype": "INT64", "shape": list(ids["ids"].shape),
               "data": ids["ids"].tolist()}  # fmt: skip
        body = json.dumps({"inputs": [row]}).encode()
        with urlopen(Request(f"{url}v2/models/encoder/infer", body)) as answer:
            (found,) = json.load(answer)["outputs"]
        assert numpy.float32(found["data"]).tobytes() == expected["y"].tobytes()
        with urlopen(url) as page:
            assert b"<svg" in page.read()
        done = subprocess.run(
            [*start, "load", url, "--rate", "50", "--seconds", "0.2"], cwd=folder, env=env,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "10 of 10 answered" in done.stdout + done.stderr
    finally:
        server.terminate()
        assert server.wait(30) == 0


STRINGS = """
import anydim, anydim.ort as ort
for name in ("classifier", "joined"):
    try:
        model = anydim.load(f"{name}.anydim")
        session = ort.InferenceSession(f"{name}.anydim")
        given = {"flat": ["no", "YES", "what"]}
        assert session.run(["name"], given)[0].tolist() == model(**given)["name"].tolist()
        print(model(**given)["name"].tolist())
    except anydim.MissingError as error:
        print(error)
"""


def test_models_with_strings(run: Run, folder: Path) -> None:
    models = {name: ad.compile(MODELS[name][0]()) for name in ("classifier", "joined")}
    for name, model in models.items():
        model.save(folder / f"{name}.anydim")
    done = run("-c", STRINGS, cli=False)
    assert done.returncode == 0, done.stderr
    expected = models["classifier"](flat=["no", "YES", "what"])["name"].tolist()
    assert done.stdout.splitlines() == [
        str(expected),
        f"m, whose operators on strings numpy lacks, {COMPILER}",
        "  pip uninstall anydim-runtime, then pip install anydim",
    ]
    done = run("-m", "anydim", "inspect", "classifier.anydim")
    assert "flat: tensor(string)[N]" in done.stdout
