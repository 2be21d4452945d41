"""The same networks by both doors: the module itself, and torch.onnx.export's file.

    python -m bench.torch_doors
    python -m bench.torch_doors --net gpt

Launches of a call, the time of calls by the module's door relative to the file's (the ratio of sums
of medians over a few sizes, calls alternately, one thread), and the sizes among 50 at which
each door's results equal eager torch (1e-4 of each element and 1e-5 of the largest).
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import torch

import anydim as ad
from tests.torch.image_nets import IMAGE_NETS
from tests.torch.nets import NETS, Net

_SIZES, _TIMED, _REPEATS = 50, 5, 30
Call = Callable[..., list[Any]]


@click.command(help=__doc__)
@click.option("--net", "names", multiple=True)
def main(names: tuple[str, ...]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    columns = "| net | launches: module | file | time, module / file | right: module | file |"
    print(columns, "|---|---|---|---|---|---|", sep="\n")
    for net in (*NETS, *IMAGE_NETS):
        if not names or net.name in names:
            print(_row(net), flush=True)


def _row(net: Net) -> str:
    torch.manual_seed(0)
    module = net.module().eval()
    example = net.inputs(*net.example)
    models = [ad.compile(module, example, dynamic_shapes=net.dynamic_shapes(), threads=1)]
    try:
        models.append(_by_file(net, module, example))
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:60]
        file = f"not exported ({type(error).__name__}: {reason})"
    sizes = list(_sizes(net))
    calls = [_call(model) for model in models]
    right = [sum(_is_right(module, call, net, each) for each in sizes) for call in calls]
    counts = [len(model.program.sites) for model in models]
    if len(models) == 1:
        return f"| {net.name} | {counts[0]} | {file} | | {right[0]} of {len(sizes)} | |"
    return (
        f"| {net.name} | {counts[0]} | {counts[1]} | {_ratio(net, calls, sizes):.2f} "
        f"| {right[0]} of {len(sizes)} | {right[1]} of {len(sizes)} |"
    )


def _by_file(net: Net, module: Any, example: tuple[Any, ...]) -> Any:
    """The model of the file that torch.onnx.export writes."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = str(Path(folder, "net.onnx"))
        torch.onnx.export(
            module, example, path, dynamo=True, dynamic_shapes=net.dynamic_shapes(),
            external_data=False, verbose=False,
        )  # fmt: skip
        return ad.compile(path, threads=1)


def _call(model: Any) -> Call:
    names = [spec.name for spec in model.inputs]

    def call(*inputs: Any) -> list[Any]:
        return torch.utils._pytree.tree_leaves(model(**dict(zip(names, inputs))))

    return call


def _sizes(net: Net) -> Iterator[tuple[int, ...]]:
    """Sizes between those of the net's own list, in steps that all of these have in common."""
    own = list(zip(net.example, *net.others))
    generator = torch.Generator().manual_seed(0)
    for _ in range(_SIZES):
        yield tuple(_between(values, generator) for values in own)


def _between(values: tuple[int, ...], generator: torch.Generator) -> int:
    step, low, high = math.gcd(*values) or 1, min(values), max(values)
    return low + step * int(torch.randint((high - low) // step + 1, (), generator=generator))


def _is_right(module: Any, call: Call, net: Net, sizes: tuple[int, ...]) -> bool:
    inputs = net.inputs(*sizes)
    try:
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(module(*inputs))
        found = [torch.as_tensor(each) for each in call(*inputs)]
    except (ad.UserError, ValueError):
        return False
    return len(found) == len(wanted) and all(map(_is_close, found, wanted))


def _is_close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    if ours.shape != theirs.shape:
        return False
    scale = float(theirs.abs().max()) if theirs.numel() else 0.0
    return torch.allclose(ours.to(theirs.dtype), theirs, rtol=1e-4, atol=1e-5 * max(1.0, scale))


def _ratio(net: Net, calls: list[Call], sizes: list[tuple[int, ...]]) -> float:
    """The time of the first call by that of the second."""
    totals = [0.0, 0.0]
    for each in sizes[:_TIMED]:
        inputs = net.inputs(*each)
        times: list[list[float]] = [[], []]
        for _ in range(_REPEATS):
            for call, own in zip(calls, times):
                start = time.perf_counter()
                try:
                    call(*inputs)
                except ad.UserError:
                    return math.nan
                own.append(time.perf_counter() - start)
        for number, own in enumerate(times):
            totals[number] += statistics.median(own)
    return totals[0] / totals[1]


if __name__ == "__main__":
    main()
