"""How much memory processes take over streams of requests, engine beside engine.

python -m bench.resident                                   # all installed engines
python -m bench.resident --requests 500 --more 1000        # fewer requests
python -m bench.resident --engine anydim --model lstm
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import click

import anydim as ad
from anydim.base.text import table
from bench.isolated import ROOT, pinned
from bench.resident.models import SUBJECTS
from bench.resident.process import LOADS

MIB = 1 << 20
BASE = "onnxruntime"


@click.command(help=__doc__)
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(LOADS)))
@click.option("--model", "models", multiple=True, type=click.Choice(list(SUBJECTS)))
@click.option("--requests", default=2000, show_default=True, help="At random sizes, every engine.")
@click.option("--more", default=20000, show_default=True, help="Then these, anydim alone.")
@click.option("--small", default=100, show_default=True, help="Before and after a large one.")
@click.option("--part", "parts", multiple=True, type=click.Choice(["stream", "large", "peaks"]))
@click.option("--out", default="out/resident.json", show_default=True, type=Path)
def main(
    engines: tuple[str, ...], models: tuple[str, ...], requests: int, more: int, small: int,
    parts: tuple[str, ...], out: Path,
) -> None:  # fmt: skip
    wanted = engines or tuple(LOADS)
    chosen = [name for name in wanted if importlib.util.find_spec(LOADS[name][0])]
    for name in wanted:
        if name not in chosen:
            click.echo(f"{name}: not installed, left out")
    pinned(1)
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in models or tuple(SUBJECTS):
            model = _prepare(name, folder)
            report[name] = {"memory": str(model.memory)}
            for part in parts or ("stream", "large", "peaks"):
                runs = {
                    engine: _runs(part, engine, name, folder, requests, more, small)
                    for engine in chosen
                    if part != "peaks" or engine in ("anydim", BASE)
                }
                report[name][part] = runs
                click.echo(f"\n{name}\n{_TABLES[part](runs)}")
    _show_ratio(report)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1), "utf-8")


def _prepare(name: str, folder: str) -> ad.Model:
    """The model as an ONNX file, and as a saved one."""
    path = Path(folder, f"{name}.onnx")
    SUBJECTS[name].write(path)
    model = ad.compile(path, dims=SUBJECTS[name].dims, threads=1)
    model.save(path.with_suffix(".anydim"))
    return model


def _runs(
    part: str, engine: str, name: str, folder: str, requests: int, more: int, small: int
) -> list[dict[str, Any]]:
    count = {
        "stream": [requests + (more if engine == "anydim" else 0)],
        "large": [small],
        "peaks": list(range(len(SUBJECTS[name].peaks))),
    }
    return [_run(engine, name, folder, part, number) for number in count[part]]


def _run(engine: str, name: str, folder: str, part: str, count: int) -> dict[str, Any]:
    """In a process of its own."""
    command = [sys.executable, "-m", "bench.resident.process", engine, name, folder, part]
    done = subprocess.run(
        [*command, str(count)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{engine} failed in its own process:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# ---- tables ------------------------------------------------------------------------------------


def _stream(runs: dict[str, list[dict[str, Any]]]) -> str:
    rows = []
    for engine, (run,) in runs.items():
        seen = dict(run["seen"])
        first, last = seen[50], max(seen)
        growth = f"{100 * (seen[last] / first - 1):+.1f} %"
        most = f"{100 * (max(seen.values()) / first - 1):+.1f} %"
        marks = (run["loaded"], first, seen[last])
        rows.append((engine, *map(_mib, marks), str(last), growth, most))
    return table(("MiB after", "loading", "50", "all", "requests", "growth", "most"), rows)


def _large(runs: dict[str, list[dict[str, Any]]]) -> str:
    rows = [
        (engine, *(_mib(run[key]) for key in ("loaded", "before", "large", "after")),
         f"{run['after'] / run['before']:.3f}")
        for engine, (run,) in runs.items()
    ]  # fmt: skip
    return table(("MiB after", "loading", "small", "a large one", "small", "ratio"), rows)


def _peaks(runs: dict[str, list[dict[str, Any]]]) -> str:
    rows = []
    for number, run in enumerate(runs["anydim"]):
        sizes = ", ".join(f"{name} {size}" for name, size in run["sizes"].items())
        above = {engine: _above(each[number]) for engine, each in runs.items()}
        ratio = f"{_ratio(runs, number):.2f}" if BASE in runs else ""
        rows.append((sizes, *map(_mib, above.values()), ratio))
    return table(("peak, MiB above the weights", *runs, "ratio"), rows)


_TABLES = {"stream": _stream, "large": _large, "peaks": _peaks}


def _mib(bytes: int) -> str:
    return f"{bytes / MIB:.1f}"


def _above(run: dict[str, Any]) -> int:
    """Above what the process had after its imports, the inputs and the weights once."""
    return int(run["peak"] - run["imported"] - run["inputs"] - run["weights"])


def _ratio(runs: dict[str, list[dict[str, Any]]], number: int) -> float:
    return _above(runs["anydim"][number]) / _above(runs[BASE][number])


def _show_ratio(report: dict[str, Any]) -> None:
    """Of all peaks together."""
    ratios = [
        _ratio(parts["peaks"], number)
        for parts in report.values()
        if {"anydim", BASE} <= parts.get("peaks", {}).keys()
        for number in range(len(parts["peaks"]["anydim"]))
    ]
    if ratios:
        click.echo(f"\npeaks, anydim / {BASE}: {geometric_mean(ratios):.2f} in geometric mean")


if __name__ == "__main__":
    main()
