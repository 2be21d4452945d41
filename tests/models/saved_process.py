"""A process that has saved models, numpy and nothing else: what calls give there.

    python tests/models/saved_process.py FOLDER

`outcomes` is what both sides do, the one that compiled and the one that loads: calls at random
sizes and calls that cannot be, each with the digest of its results or the text of its error.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
BLOCKED = ("llvmlite", "onnx", "rich", "click", "ml_dtypes", "islpy", "onnxruntime")
HUGE = 1 << 40  # an index outside of anything


@dataclass(frozen=True)
class Draw:
    """How inputs of a model are drawn: `sizes` from a generator, `arrays` at those sizes.

    `first` are the sizes that come before all others.
    """

    sizes: Callable[[np.random.Generator], dict[str, int]]
    arrays: Callable[[np.random.Generator, dict[str, int]], Arrays]
    first: tuple[dict[str, int], ...] = ()

    def calls(self, count: int) -> Iterator[tuple[dict[str, int], Arrays]]:
        """Sizes and inputs of so many calls, always the same ones."""
        for number in range(count):
            random = np.random.default_rng(number)
            known = number < len(self.first)
            sizes = self.first[number] if known else self.sizes(random)
            yield sizes, self.arrays(random, sizes)


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, np.float32)


def sentences(vocabulary: int) -> Callable[[np.random.Generator, dict[str, int]], Arrays]:
    """Tokens, and a mask for ragged lengths."""

    def arrays(random: np.random.Generator, sizes: dict[str, int]) -> Arrays:
        batch, seq = sizes["batch"], sizes["seq"]
        lengths = random.integers(0, seq, batch, endpoint=True)
        mask = np.arange(seq) < np.maximum(1, lengths)[:, None]
        ids = random.integers(0, vocabulary, (batch, seq))
        return {"input_ids": ids, "attention_mask": mask.astype(np.int64)}

    return arrays


def images(name: str) -> Callable[[np.random.Generator, dict[str, int]], Arrays]:
    """Images under the name of a model's input."""

    def arrays(random: np.random.Generator, s: dict[str, int]) -> Arrays:
        height, width = s.get("height", 224), s.get("width", 224)
        return {name: floats(random, s["batch"], 3, height, width)}

    return arrays


def tagged(random: np.random.Generator, s: dict[str, int]) -> Arrays:
    """Ragged rows for a recurrent layer."""
    lengths = random.integers(0, s["T"], s["B"], endpoint=True)
    return {"x": floats(random, s["T"], s["B"], 7), "lengths": lengths.astype(np.int32)}


def boxes(random: np.random.Generator, sizes: dict[str, int]) -> Arrays:
    corners = random.uniform(0, 40, (sizes["n"], 2))
    both = np.hstack([corners, corners + random.uniform(2, 20, corners.shape)])
    scores = random.random(sizes["n"], np.float32)
    return {"boxes": both.astype(np.float32), "scores": scores}


def attended(random: np.random.Generator, s: dict[str, int]) -> Arrays:
    """Queries, keys and values of a definition."""
    q = floats(random, s["b.1"], s["Q"], 64)
    return {"q": q, "k": floats(random, s["b.1"], s["K"], 64),
            "v": floats(random, s["b.1"], s["K"], 64)}  # fmt: skip


def between(**ranges: tuple[int, int]) -> Callable[[np.random.Generator], dict[str, int]]:
    """Sizes from ranges, both ends included."""
    return lambda random: {
        name: int(random.integers(low, high, endpoint=True)) for name, (low, high) in ranges.items()
    }


def weighted(random: np.random.Generator) -> dict[str, int]:
    """Sentences: many short ones, some long ones in small batches."""
    seq = int(np.exp(random.uniform(0, np.log(512))))
    return {"batch": int(random.integers(0, max(1, 600 // seq), endpoint=True)) % 65, "seq": seq}


SMALL: Mapping[str, Draw] = {
    "encoder": Draw(between(batch=(0, 5), seq=(1, 20)), sentences(50),
                    ({"batch": 0, "seq": 1}, {"batch": 1, "seq": 1}, {"batch": 5, "seq": 20})),
    "classifier": Draw(between(batch=(1, 2), height=(32, 49), width=(32, 49)), images("data_0")),
    "tagger": Draw(between(T=(1, 9), B=(0, 5)), tagged, ({"T": 1, "B": 0}, {"T": 1, "B": 1})),
    "detector": Draw(between(n=(0, 70)), boxes, tuple({"n": n} for n in (0, 1, 7, 8, 9, 101))),
    "definition": Draw(between(**{"b.1": (0, 3), "Q": (0, 30), "K": (1, 30)}), attended),
}  # fmt: skip
REAL: Mapping[str, Draw] = {
    "encoder": Draw(weighted, sentences(30522), ({"batch": 0, "seq": 1}, {"batch": 1, "seq": 512})),
    "classifier": Draw(between(batch=(1, 3)), images("gpu_0/data_0"), ({"batch": 8},)),
    "tagger": Draw(between(T=(1, 150), B=(0, 17)), tagged),
    "detector": Draw(between(n=(0, 10_000)), boxes, ({"n": 0}, {"n": 1}, {"n": 10_000})),
    "definition": Draw(between(**{"b.1": (0, 9), "Q": (0, 300), "K": (1, 300)}), attended),
}


def mistakes(inputs: Arrays) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls of which most cannot be, made from one that can."""
    for name, array in inputs.items():
        others = {key: value for key, value in inputs.items() if key != name}
        yield f"without {name}", others
        yield f"{name} misspelt", {**others, f"{name}s": array}
        for what, given in (
            ("with an axis more", array[None]),
            ("as bytes", array.astype(np.int8)),
            ("as complex numbers", array.astype(np.complex64)),
            ("as text", "text"),
            ("twice as long", np.concatenate([array, array])),
            ("empty", array[:0]),
            ("as a million", np.zeros((1_000_000, *array.shape[1:]), np.int8).astype(array.dtype)
             if array.ndim == 1 else array[..., None]),
            ("of huge values", np.full_like(array, HUGE if array.dtype == np.int64 else 100)),
            ("of negative values", np.full_like(array, -1000)),
        ):  # fmt: skip
            yield f"{name} {what}", {**others, name: given}


def outcome(call: Callable[..., Any], inputs: Mapping[str, Any]) -> str:
    """The digest of what a call gives, names and types included, or its error."""
    try:
        results = call(**inputs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    state = hashlib.sha256()
    for name, array in results.items():
        state.update(f"{name} {array.dtype} {array.shape}\n".encode())
        state.update(np.ascontiguousarray(array))
    return state.hexdigest()


def outcomes(model: Any, draw: Draw, count: int) -> dict[str, str]:
    """What so many calls and their mistakes give, and what plans and memory say."""
    found = {"memory": str(model.memory), "explained": model.explain(details=True)}
    for number, (sizes, inputs) in enumerate(draw.calls(count)):
        found[f"call {number} at {sizes}"] = outcome(model, inputs)
        if number in (3, 4):
            found[f"plan at {sizes}"] = str(model.plan(**sizes))
            for what, wrong in mistakes(inputs):
                found[f"{what}, at {sizes}"] = outcome(model, wrong)
    return found


class Absent:
    """Finds no module that a process without compiler lacks."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.split(".")[0] in BLOCKED:
            raise ImportError(f"{name} is not there")


def main(folder: Path, kinds: str, count: int) -> None:
    """Load what there is and print outcomes."""
    sys.meta_path.insert(0, Absent())
    import anydim

    draws = SMALL if kinds == "small" else REAL
    loaded = {name: anydim.load(folder / f"{name}.anydim") for name in draws}
    found = {name: outcomes(loaded[name], draw, count) for name, draw in draws.items()}
    rooms = {name.split(".")[1] for name in sys.modules if name.startswith("anydim.")}
    print(json.dumps({"outcomes": found, "rooms": sorted(rooms)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
