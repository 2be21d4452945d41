"""Writes the wheel of `anydim-runtime`: what loads and runs saved models, with numpy alone.

The extra `cli` adds the packages of the command line, `serve` those of the server besides, `lm`
those of saved language models.

    python -m release.runtime_wheel dist

It holds the modules of `modules()`, as they are in `src`, and provides the package `anydim` as the
whole distribution does: one of the two is installed. Version, licence, classifiers, addresses and
the range of numpy come from `pyproject.toml`. The same tree gives the same bytes. Format: PEP 427
and the specification "Core metadata".
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
NAME = "anydim-runtime"
KEYWORDS = ("inference", "runtime", "dynamic shapes", "numpy")
COMPILER = "Topic :: Software Development :: Compilers"  # which this distribution is not
ROOMS = ("base", "sizes", "runtime", "deploy", "serving")
ALONE = (
    "__init__", "__main__", "api/__init__", "api/cached_rows", "api/compile_options",
    "compiler/__init__",
)  # fmt: skip
STRATEGIES = "compiler/variants/strategies"  # what `load` may be asked for
SESSIONS = "ort"  # of saved models
COMMANDS = (
    "__init__", "app", "arrays", "bench", "bench_rows", "bench_tokens", "caching",
    "chatting", "commands", "devices", "feeding",
    "inspecting", "language", "lengths", "memory", "opening", "options", "profiling", "ranges",
    "saving", "serving", "tracing",
)  # fmt: skip
REPORTS = (
    "__init__", "compared", "console", "measure", "pages", "peers", "plot", "plot_page", "text",
    "trace_page",
)  # fmt: skip
CLI = ("click", "rich")  # packages of the command line
LM = ("tokenizers", "jinja2")  # packages of saved language models
SERVE = "serve"  # the extra of the server, which has the packages of the whole distribution's
DATA = ("py.typed", "serving/server/page.html")  # files beside modules
COMPILING = {
    *(
        f"anydim/deploy/{name}.py"
        for name in (
            "save",
            "archive",
            "constants",
            "exchange",
            "exporting",
            "string_members",
        )
    ),
    *(f"anydim/ort/{name}.py" for name in ("file", "cached_compile")),
}
LEFT = ("anydim/deploy/export/", "anydim/deploy/web/", "anydim/serving/ray/")
LANGUAGE = "anydim/serving/language_models/"  # of which files that are not saved need the compiler
SAVED_LANGUAGE = {
    f"{LANGUAGE}{name}.py"
    for name in (
        "__init__", "bounded_templates", "chat_template", "config_fields", "decoder_caches",
        "decoder_spec", "language_model", "messages", "opened", "paths", "saved_model", "sources",
        "tokenizer_files",
    )
}  # fmt: skip
_DATE = (1980, 1, 1, 0, 0, 0)


def modules() -> list[Path]:
    """The Python files of the runtime distribution."""
    found = [SOURCE / "anydim" / f"{name}.py" for name in ALONE]
    for room in (*ROOMS, SESSIONS):
        found += sorted((SOURCE / "anydim" / room).rglob("*.py"))
    found += [SOURCE / "anydim" / "cli" / f"{name}.py" for name in COMMANDS]
    found += [SOURCE / "anydim" / "cli" / "report" / f"{name}.py" for name in REPORTS]
    found += [SOURCE / "anydim" / "compiler" / "variants" / "__init__.py"]
    found += sorted((SOURCE / "anydim" / STRATEGIES).rglob("*.py"))
    names = {path: path.relative_to(SOURCE).as_posix() for path in found}
    return [path for path, name in names.items()
            if name not in COMPILING and not name.startswith(LEFT)
            and (name in SAVED_LANGUAGE or not name.startswith(LANGUAGE))]  # fmt: skip


def write(folder: Path) -> Path:
    """The wheel, written into a folder."""
    project: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
        "project"
    ]
    stem = f"{NAME.replace('-', '_')}-{project['version']}"
    about = f"{stem}.dist-info"
    files = dict(_files(project, about))
    files[f"{about}/RECORD"] = _record(files, f"{about}/RECORD")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data)
    return path


def _files(project: Mapping[str, Any], about: str) -> Iterator[tuple[str, bytes]]:
    for path in [*modules(), *(SOURCE / "anydim" / name for name in DATA)]:
        yield path.relative_to(SOURCE).as_posix(), path.read_bytes()
    yield f"{about}/METADATA", _metadata(project).encode()
    yield (
        f"{about}/WHEEL",
        (b"Wheel-Version: 1.0\nGenerator: anydim\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
    )
    scripts = "".join(f"{name} = {where}\n" for name, where in project["scripts"].items())
    yield f"{about}/entry_points.txt", f"[console_scripts]\n{scripts}".encode()
    yield f"{about}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes()


def _metadata(project: Mapping[str, Any]) -> str:
    needed = {re.split(r"\W", each)[0]: each for each in project["dependencies"]}
    cli = [needed[name] for name in CLI]
    optional = project["optional-dependencies"]
    extras = {"cli": cli, SERVE: [*cli, *optional[SERVE]]}
    extras["lm"] = [each for each in optional["lm"] if each.startswith(LM)]
    head = [
        ("Metadata-Version", "2.4"),
        ("Name", NAME),
        ("Version", project["version"]),
        ("Summary", "Run models that anydim compiled and saved: numpy is all it needs"),
        ("Keywords", ",".join(KEYWORDS)),
        ("License-Expression", project["license"]),
        ("License-File", "LICENSE"),
        *(("Classifier", each) for each in project["classifiers"] if each != COMPILER),
        *(("Project-URL", f"{name}, {url}") for name, url in project.get("urls", {}).items()),
        ("Requires-Python", project["requires-python"]),
        ("Requires-Dist", needed["numpy"]),
        *(("Provides-Extra", extra) for extra in extras),
        *(
            ("Requires-Dist", f"{each}; extra == '{extra}'")
            for extra, packages in extras.items()
            for each in packages
        ),
        ("Description-Content-Type", "text/markdown"),
    ]
    text = (Path(__file__).parent / "runtime.md").read_text("utf-8")
    return "".join(f"{key}: {value}\n" for key, value in head) + "\n" + text


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    rows = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items()]
    return "".join([*rows, f"{own},,\n"]).encode()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    print(f"wrote {write(parser.parse_args().folder)}")
