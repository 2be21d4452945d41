"""torch.compile with anydim's backend and Inductor's, beside eager torch, all with dynamic=True.

    python -m bench.torch_compile                              # calls: networks at 20 sizes
    python -m bench.torch_compile --training                   # 100 steps at changing sizes
    python -m bench.torch_compile --net MiniLM --backend anydim

Each pair of a network and a backend has a process of its own, without caches. Compiled and eager
calls take turns; a time is the sum over sizes of the least of the calls at a size, relative to
eager torch's. Seconds to compile are those of the processor, from the first call to its result.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import click

from bench.torch_nets import CALLED, TRAINED, Network, labels

BACKENDS = ("anydim", "inductor", "openvino")
SIZES = tuple((1 + step % 5 + 1, 8 + step * 5 % 47) for step in range(20))
_REPEATS = 5
_STEPS = 100


@click.command(help=__doc__)
@click.option("--net", "nets", multiple=True)
@click.option("--backend", "backends", multiple=True, type=click.Choice([*BACKENDS, "aot_eager"]))
@click.option("--training", is_flag=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--worker", is_flag=True, hidden=True)
def main(
    nets: tuple[str, ...], backends: tuple[str, ...], training: bool, threads: int, worker: bool
) -> None:
    if worker:
        print(json.dumps(_measured(nets[0], backends[0], training, threads)))
        return
    known = TRAINED if training else CALLED
    columns = "| net | backend | compile s | graphs | time / eager | largest difference |"
    print(columns, "|---|---|---|---|---|---|", sep="\n")
    for net in nets or known:
        for backend in backends or (BACKENDS[:2] if training else BACKENDS):
            print(_row(net, backend, training, threads), flush=True)


def _row(net: str, backend: str, training: bool, threads: int) -> str:
    """The row of a table, measured in a process without caches."""
    words = ["--worker", "--net", net, "--backend", backend, "--threads", str(threads)]
    with tempfile.TemporaryDirectory() as folder:
        places = {"XDG_CACHE_HOME": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
        done = subprocess.run(
            [sys.executable, "-m", "bench.torch_compile", *words, *["--training"] * training],
            env={**os.environ, **places}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        return f"| {net} | {backend} | {(done.stderr.strip().splitlines() or ['?'])[-1]} |"
    found = json.loads(done.stdout.splitlines()[-1])
    return (
        f"| {net} | {backend} | {found['seconds']:.1f} | {found['graphs']} "
        f"| {found['ratio']:.2f} | {found['difference']:.1e} |"
    )


def _measured(name: str, backend: str, training: bool, threads: int) -> dict[str, Any]:
    """Seconds to compile, the graphs of torch's counters, time by eager's, largest difference."""
    import torch

    import anydim.torch.backend  # noqa: F401  registers the backend

    if backend == "openvino":
        import openvino.torch  # noqa: F401  registers its backend
    if training:
        import torch._inductor.config

        torch._inductor.config.fallback_random = True  # dropout with the masks of eager torch
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    return (_trained if training else _called)((TRAINED if training else CALLED)[name], backend)


def _called(net: Network, backend: str) -> dict[str, Any]:
    import torch
    from torch._dynamo.utils import counters

    module = net.module().eval()
    call = torch.compile(module, backend=backend, dynamic=True)
    with torch.no_grad():
        seconds = _seconds(lambda: call(*net.inputs(*SIZES[0])))
        best = {each: [1e9] * len(SIZES) for each in (module, call)}
        difference = 0.0
        for place, size in enumerate(SIZES):
            inputs = net.inputs(*size)
            for _ in range(_REPEATS):
                results = []
                for each, own in best.items():
                    start = time.perf_counter()
                    results.append(each(*inputs))
                    own[place] = min(own[place], time.perf_counter() - start)
            difference = max(difference, _difference(*results))
    return {
        "seconds": seconds, "graphs": counters["stats"]["unique_graphs"],
        "ratio": sum(best[call]) / sum(best[module]), "difference": difference,
    }  # fmt: skip


def _trained(net: Network, backend: str) -> dict[str, Any]:
    """Steps at changing sizes; the difference is that of losses and of all gradients together."""
    import torch
    from torch._dynamo.utils import counters

    eager = net.module()
    module = copy.deepcopy(eager)
    calls = {eager: eager, module: torch.compile(module, backend=backend, dynamic=True)}
    optimisers = {each: torch.optim.SGD(each.parameters(), 0.02) for each in calls}
    times: dict[Any, list[float]] = {each: [] for each in calls}
    seconds, difference = 0.0, 0.0
    for step in range(_STEPS):
        inputs = net.inputs(*SIZES[step * 7 % len(SIZES)])
        wanted = labels(inputs)
        losses = []
        for each, call in calls.items():
            torch.manual_seed(step)
            start, processor = time.perf_counter(), time.process_time()
            optimisers[each].zero_grad()
            loss = torch.nn.functional.cross_entropy(call(*inputs), wanted)
            loss.backward()
            optimisers[each].step()
            times[each].append(time.perf_counter() - start)
            losses.append(loss.detach())
            if step == 0 and each is module:
                seconds = time.process_time() - processor
        gradients = [torch.cat([p.grad.flatten() for p in each.parameters()])
                     for each in (module, eager)]  # fmt: skip
        difference = max(difference, _difference(*reversed(losses)), _difference(*gradients))
    ratio = sorted(b / a for a, b in zip(times[eager][10:], times[module][10:]))
    return {
        "seconds": seconds, "graphs": counters["stats"]["unique_graphs"],
        "ratio": ratio[len(ratio) // 2], "difference": difference,
    }  # fmt: skip


def _seconds(act: Any) -> float:
    start = time.process_time()
    act()
    return time.process_time() - start


def _difference(found: Any, wanted: Any) -> float:
    """The largest difference by the largest element."""
    import torch

    pairs = zip(*(torch.utils._pytree.tree_leaves(each) for each in (found, wanted)))
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-6)) for a, b in pairs)


if __name__ == "__main__":
    main()
