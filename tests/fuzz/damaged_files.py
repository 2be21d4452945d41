"""Files that are damaged or mixed up: exports for browsers, and models saved for several targets.

A file is changed as `tests/unit/deploy/hostile.py` does it, emptied, lost, or exchanged for another
model's. Loading answers with an error, of exports one that names the file, what was expected and
what came, or the results have the bits of the good files. A model that is saved for other machines
alone is refused, damaged or not.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import anydim as ad
from tests.fuzz.runner import Outcome, run_texts
from tests.unit.deploy.hostile import DAMAGE, outcome
from tests.unit.deploy.kinds import KINDS
from tests.unit.deploy.web.node import answers

EXPORTED = ("encoder", "looped", "wide")
FILES = ("model.wasm", "model-relaxed.wasm", "model-threads.wasm", "model.weights", "model.js")
CHANGES = 8  # of an export, in one process
TARGETS = {  # whether there is code for this machine
    ("x86-64-v2", "native", "aarch64"): True, ("windows-x86-64-v3", "native"): True,
    ("windows-x86-64-v2", "macos-aarch64", "riscv64"): False,
}  # fmt: skip
CASES = 2  # calls of a saved model
_CODE = """(async () => {
  try {
    const { load } = await import(FILE);
    const model = await load({ relaxed: RELAXED, threads: THREADS });
    const bytes = ({ shape, data }) => [shape, Array.from(new Uint8Array(data.buffer))];
    const made = Object.entries(await model.run(INPUTS));
    return { made: made.map(([name, value]) => [name, ...bytes(value)]) };
  } catch (error) {
    return { kind: error.name, error: String(error.message) };
  }
})()"""


@dataclass(frozen=True)
class Change:
    """A file of an export with other bytes, or None: lost."""

    export: str
    file: str
    how: str
    data: bytes | None


@cache
def folder() -> Path:
    """A folder with exports and saved models, made once."""
    made = tempfile.TemporaryDirectory()
    _KEPT.append(made)
    path = Path(made.name)
    for name, kind in KINDS.items():
        model = ad.compile(kind.build())
        if name in EXPORTED:
            model.export(path / name, target="wasm32")
        for number, targets in enumerate(TARGETS):
            model.save(path / f"{name}{number}.anydim", targets)
    return path


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


# ---- exports -------------------------------------------------------------------------------------


def changes_of(seed: int) -> list[Change]:
    """Changes of an export's files, some of them none."""
    chance = random.Random(seed)
    return [_change(chance, chance.choice(EXPORTED), chance.choice(FILES)) for _ in range(CHANGES)]


def _change(chance: random.Random, export: str, file: str) -> Change:
    good = (folder() / export / file).read_bytes()
    others = [(folder() / name / each).read_bytes() for name in EXPORTED for each in FILES]
    how = chance.choice(("damaged",) * 4 + ("emptied", "lost", "exchanged", "zeros"))
    if how == "emptied":
        return Change(export, file, how, b"")
    if how == "lost":
        return Change(export, file, how, None)
    if how == "exchanged":
        name = chance.choice([each for each in EXPORTED if each != export])
        return Change(export, file, how, (folder() / name / file).read_bytes())
    if how == "zeros":
        return Change(export, file, how, bytes(len(good)))
    damage = chance.choice(DAMAGE)
    if file != "model.js":
        return Change(export, file, damage.__name__, damage(chance, bytearray(good), others))
    # only the description is compared: an engine runs what JavaScript says
    start = good.index(b"described('") + len(b"described('")
    stop = good.index(b"', ", start)
    part = damage(chance, bytearray(good[start:stop]), others)
    return Change(export, file, damage.__name__, good[:start] + part + good[stop:])


def web_fault(seed: int) -> str:
    """The first change of an export after which something else came than may come; '' for none."""
    changes = changes_of(seed)
    with tempfile.TemporaryDirectory() as place:
        codes = []
        for number, change in enumerate(changes):
            path = Path(place, str(number))
            shutil.copytree(folder() / change.export, path)
            (path / change.file).unlink()
            if change.data is not None:
                (path / change.file).write_bytes(change.data)
            codes += [_call(folder() / change.export, change), _call(path, change)]
        found = answers(folder() / EXPORTED[0], [{"code": code} for code in codes], relaxed=True)
    for change, good, came in zip(changes, found[::2], found[1::2], strict=True):
        problem = _judged(change, good["value"], came["value"])
        if problem:
            return f"{change.file} of {change.export}, {change.how}: {problem}"
    return ""


def _call(path: Path, change: Change) -> str:
    *_, inputs = islice(KINDS[change.export].inputs(), 3)
    given = {
        name: {"data": array.reshape(-1).tolist(), "shape": array.shape}
        for name, array in inputs.items()
    }
    values: Mapping[str, Any] = {
        "FILE": (path / "model.js").as_uri(), "RELAXED": "relaxed" in change.file,
        "THREADS": 1 + ("threads" in change.file), "INPUTS": given,
    }  # fmt: skip
    code = _CODE
    for name, value in values.items():
        code = code.replace(name, json.dumps(value))
    return code


def _judged(change: Change, good: Mapping[str, Any], came: Mapping[str, Any]) -> str:
    """What is wrong with an answer; '' for nothing."""
    if "made" not in good:
        return f"the good files give {good}"
    if "made" in came:
        return "" if came == good else f"the result is {came['made']}, expected {good['made']}"
    if change.file == "model.js":
        return ""  # engines have texts of their own for a file that is no JavaScript
    text = came["error"]
    wanted = (change.file,) if change.how == "lost" else (change.file, "expected", "came")
    missing = [word for word in wanted if word not in text]
    if came["kind"] != "ModelError" or missing:
        return f"the error is {came['kind']}: {text}, without {missing}"
    return ""


# ---- saved models --------------------------------------------------------------------------------


def saved_fault(seed: int) -> str:
    """What a changed file of several targets gives that it may not; '' for nothing."""
    chance = random.Random(seed)
    name, number = chance.choice(list(KINDS)), chance.randrange(len(TARGETS))
    here = list(TARGETS.values())[number]
    good = folder() / f"{name}{number}.anydim"
    change = chance.choice((*DAMAGE, None))
    data = bytearray(good.read_bytes())
    others = [path.read_bytes() for path in sorted(folder().glob("*.anydim"))]
    cases = []
    if here:
        model = ad.load(good)
        cases = [
            (inputs, {key: array.tobytes() for key, array in model(**inputs).items()})
            for inputs in islice(KINDS[name].inputs(), 1, 1 + CASES)
        ]
    with tempfile.TemporaryDirectory() as place:
        bad = Path(place, "bad.anydim")
        bad.write_bytes(bytes(data) if change is None else change(chance, data, others))
        found = outcome(bad, cases)
    if found == "equal" and not here:
        return f"{name}: loaded, without code for this machine"
    return "" if change or found == ("equal" if here else "refused") else f"{name}: {found}"


def fault(seed: int) -> str:
    return saved_fault(seed) if seed % 2 else web_fault(seed)


def _text(seed: int) -> str:
    if seed % 2:
        return "a saved model"
    return "\n".join(f"{each.export}: {each.file}, {each.how}" for each in changes_of(seed))


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of these seeds, in order."""
    folder()  # children share it
    return run_texts(seeds, small, fault, _text)
