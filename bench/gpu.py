"""Kernels and whole models on a CUDA device, beside torch and onnxruntime where they are installed.

    python -m bench.gpu [--device cuda:0] [--only product] [--rounds 5] [--graphs 16]

`call` is a whole call of a model, from arrays of the host to arrays of the host, in milliseconds;
`kernels` is what its launches take on the device alone, one call's after another's. Beside them are
the same of a peer: torch for kernels (tensors on the device for its `kernels`), onnxruntime with
its CUDA provider for models. Times are the least of some rounds, in which all are called in turns;
`ratio` is anydim's over the peer's. `difference` is the largest error beside the host's float32
results, over the largest result: of tf32 and 16 bits that of their rounding. Peers round as anydim
does: torch's tf32 is on where a row says tf32, and off elsewhere.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ml_dtypes
import numpy

import anydim as ad
from anydim.base import settings
from anydim.base.dtypes import DType, bfloat16, float16, float32
from anydim.base.errors import DeviceError, OptionError
from anydim.base.records import dataclass
from anydim.runtime.devices import cuda_state as state
from anydim.runtime.devices.cuda import KIND, CudaDevice
from anydim.runtime.devices.libcuda import CALLS, Library
from anydim.runtime.devices.table import driver_of
from bench.opencl import WORK as MODELS
from bench.opencl import Inputs, difference, results, seconds

ROWS, WIDTHS = (1, 16, 128, 1024, 4096), (768, 4096)
HEADS, DEPTH = 12, 64
_LAUNCHES = {  # types of the functions that start launches
    state.LAUNCH: CALLS["cuLaunchKernel"],
    state.LAUNCH_GRAPH: CALLS["cuGraphLaunch"],
    state.MULTIPLY: (ctypes.c_int64,),
}


@dataclass(frozen=True)
class Row:
    """What is compiled, how, and inputs to call it with, by what they are called.

    `torch` does the same with tensors; `flops` are the operations of a call.
    """

    source: Callable[[], Any]
    inputs: Callable[[], Mapping[str, Inputs]]
    options: Mapping[str, Any]
    torch: Callable[..., Any] | None = None
    flops: Callable[[Inputs], float] | None = None
    own: bool = False


class Repeating(CudaDevice):
    """A device that can do the launches of a call again: kernels, products of a library, graphs."""

    kind = KIND

    def __init__(
        self, name: str, number: int, graphs: int = 0, library: Library | None = None
    ) -> None:
        super().__init__(name, number, library, graphs=graphs)
        self.last: list[Callable[[], int]] = []
        self._kept: list[Any] = []  # what their arguments point to

    def record_call(self, call: Callable[[], Any]) -> None:
        """Call, and note its launches."""
        self.last, self._kept, words = [], [], self.words
        usual = {word: words[word] for word in _LAUNCHES}
        recorders = {word: self._recorder(word, usual[word]) for word in _LAUNCHES if usual[word]}
        for word, recorder in recorders.items():
            words[word] = ctypes.cast(recorder, ctypes.c_void_p).value or 0
        try:
            call()
        finally:
            for word, function in usual.items():
                words[word] = function

    def _recorder(self, word: int, address: int) -> Any:
        result = ctypes.c_int64 if word == state.MULTIPLY else ctypes.c_int
        kind = ctypes.CFUNCTYPE(result, *_LAUNCHES[word])
        function = kind(address)

        def called(*given: Any) -> int:
            arguments = [*given]
            if word == state.LAUNCH:
                arguments[-1] = self._parameters(given[-1])
            elif word == state.MULTIPLY:
                head = (ctypes.c_int64 * state.HEAD).from_address(given[0])
                count = state.HEAD + head[state.PARAMETERS]
                arguments[0] = self._keep(*(ctypes.c_int64 * count).from_address(given[0]))
            done: int = function(*given)
            if done != state.DECLINED:
                self.last.append(partial(function, *arguments))
            return done

        return kind(called)

    def _keep(self, *words: int) -> int:
        self._kept.append((ctypes.c_int64 * len(words))(*words))
        return ctypes.addressof(self._kept[-1])

    def _parameters(self, extra: int) -> int:
        """A copy of the parameters of a launch."""
        buffer, given, length, size, end = (ctypes.c_int64 * 5).from_address(extra)
        bytes = ctypes.c_int64.from_address(size).value
        words = self._keep(*(ctypes.c_int64 * (bytes // 8)).from_address(given))
        return self._keep(buffer, words, length, self._keep(bytes), end)

    def again(self) -> None:
        """Those launches, with nothing to wait for."""
        with self:
            if any(launch() for launch in self.last):
                raise DeviceError("a launch failed", "run it under compute-sanitizer")


def drawn(dtype: DType, *shape: int) -> numpy.ndarray:
    return numpy.random.default_rng(shape).standard_normal(shape, numpy.float32).astype(dtype.numpy)


# ---- kernels -----------------------------------------------------------------------------------


def product(dtype: DType, width: int) -> Row:
    """x @ w, w of width x width."""

    def source() -> ad.Builder:
        g = ad.Builder("product")
        n = g.dim("n", 0, 1 << 16)
        x, w = g.input("x", dtype, (n, width)), g.input("w", dtype, (width, width))
        g.output("y", g.matmul(x, w))
        return g

    return Row(
        source,
        lambda: {
            f"{n} x {width}": {"x": drawn(dtype, n, width), "w": drawn(dtype, width, width) / 64}
            for n in ROWS
        },
        {}, lambda torch, x, w: x @ w, lambda given: 2.0 * len(given["x"]) * width * width,
    )  # fmt: skip


def convolution(dtype: DType) -> Row:
    """3 x 3, 128 channels."""

    def source() -> ad.Builder:
        g = ad.Builder("convolution")
        n, h = g.dim("n", 0, 256), g.dim("h", 1, 512)
        x, w = g.input("x", dtype, (n, 128, h, h)), g.input("w", dtype, (128, 128, 3, 3))
        g.output("y", g.conv(x, w, pads=(1, 1, 1, 1)))
        return g

    def inputs() -> Mapping[str, Inputs]:
        w = drawn(dtype, 128, 128, 3, 3) / 34
        return {
            f"{n} x {h} x {h}": {"x": drawn(dtype, n, 128, h, h), "w": w.astype(dtype.numpy)}
            for n, h in ((1, 28), (8, 56), (32, 56))
        }

    def flops(given: Inputs) -> float:
        n, _, h, v = given["x"].shape
        return 2.0 * n * h * v * 128 * 128 * 9

    return Row(
        source, inputs, {},
        lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=1), flops,
    )  # fmt: skip


def attention() -> Row:
    """Scores, softmax and the weighted sum; of all positions, then of the last few of them."""

    def source() -> ad.Builder:
        g = ad.Builder("attention")
        b, m, s = g.dim("b", 0, 64), g.dim("m", 0, 8192), g.dim("s", 0, 8192)
        q = g.input("q", float32, (b, HEADS, m, DEPTH))
        k, v = (g.input(name, float32, (b, HEADS, s, DEPTH)) for name in "kv")
        scores = g.mul(g.matmul(q, g.transpose(k, perm=(0, 1, 3, 2))), DEPTH**-0.5)
        g.output("y", g.matmul(g.softmax(scores, axis=-1), v))
        return g

    def given(b: int, m: int, s: int) -> Inputs:
        q, k, v = (drawn(float32, b, HEADS, rows, DEPTH) for rows in (m, s, s))
        return {"q": q, "k": k, "v": v}

    def inputs() -> Mapping[str, Inputs]:
        whole = {
            f"{b} x {s}": given(b, s, s) for b, s in ((1, 128), (8, 128), (1, 1024), (4, 1024))
        }
        few = ((1, 1, 1000), (16, 1, 1000), (1, 8, 1000), (1, 1, 8000))
        return whole | {f"{b} x {m} of {s}": given(b, m, s) for b, m, s in few}

    def flops(given: Inputs) -> float:
        b, h, m, d = given["q"].shape
        return 4.0 * b * h * m * given["k"].shape[2] * d

    attend = "scaled_dot_product_attention"
    return Row(
        source, inputs, {},
        lambda torch, q, k, v: getattr(torch.nn.functional, attend)(q, k, v), flops,
    )  # fmt: skip


def plain(name: str, make: Callable[[ad.Builder, Any], Any], peer: Callable[..., Any]) -> Row:
    """What reads an array of two dimensions and makes one."""

    def source() -> ad.Builder:
        g = ad.Builder(name)
        x = g.input("x", float32, (g.dim("n", 0, 1 << 16), g.dim("m", 0, 1 << 16)))
        g.output("y", make(g, x))
        return g

    return Row(
        source,
        lambda: {f"{n} x {m}": {"x": drawn(float32, n, m)} for n, m in ((64, 1000), (8192, 4096))},
        {}, peer,
    )  # fmt: skip


def of(row: Row, own: bool = False, **options: Any) -> Row:
    return Row(row.source, row.inputs, options, row.torch, row.flops, own)


def models() -> dict[str, Row]:
    """Whole models, also without cuBLASLt, and where products may be rounded to tf32."""
    made = {}
    for name in ("MiniLM", "resnet50", "decoder"):
        work = MODELS[name]
        row = Row(work.source, work.inputs, {})
        made[name] = row
        made[f"{name}, own products"] = of(row, own=True)
        made[f"{name}, tf32"] = of(row, precision="tf32")
        made[f"{name}, tf32, own products"] = of(row, own=True, precision="tf32")
    return made


def rows() -> dict[str, Row]:
    """All there is, by name."""
    made: dict[str, Row] = {}
    for width in WIDTHS:
        made[f"product, float32, {width}"] = product(float32, width)
        for dtype in (float32, float16):
            made[f"product, {dtype}, own, {width}"] = of(product(dtype, width), own=True)
        made[f"product, tf32, {width}"] = of(product(float32, width), precision="tf32")
        made[f"product, float16, {width}"] = product(float16, width)
        made[f"product, bfloat16, {width}"] = product(bfloat16, width)
    made["convolution, float32"] = convolution(float32)
    made["convolution, tf32"] = of(convolution(float32), precision="tf32")
    made["convolution, float16"] = convolution(float16)
    made["attention, float32"] = attention()
    made["softmax"] = plain(
        "softmax", lambda g, x: g.softmax(x, axis=-1), lambda torch, x: torch.softmax(x, -1)
    )
    made["gelu"] = plain(
        "gelu", lambda g, x: g.gelu(x), lambda torch, x: torch.nn.functional.gelu(x)
    )
    return made | models()


# ---- peers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """A peer's whole call, and its work with what lies on the device already."""

    name: str
    call: Callable[[], Any]
    kernels: Callable[[], None] | None = None


def torch_peer(row: Row, given: Inputs) -> Peer | None:
    """torch on the same device; None where it is not installed, or sees no device."""
    try:
        import torch
    except ImportError:
        return None
    if row.torch is None or not torch.cuda.is_available():
        return None
    exact = row.options.get("precision") != "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not exact
    work = partial(row.torch, torch)

    def tensor(array: numpy.ndarray) -> Any:
        if array.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16).cuda()
        return torch.from_numpy(array).cuda()

    here = {name: tensor(array) for name, array in given.items()}

    def call() -> Any:
        return work(**{name: tensor(array) for name, array in given.items()}).cpu()

    def kernels() -> None:
        work(**here)

    def through() -> None:
        repeated(kernels, torch.cuda.synchronize)

    return Peer("torch", call, through)


def onnxruntime_peer(row: Row, given: Inputs) -> Peer | None:
    """onnxruntime with its CUDA provider; None where there is none, or no file."""
    try:
        import onnxruntime
    except ImportError:
        return None
    provider = "CUDAExecutionProvider"
    source = row.source()
    if provider not in onnxruntime.get_available_providers() or isinstance(source, ad.Builder):
        return None
    file = source if isinstance(source, bytes) else source.SerializeToString()
    options = {"use_tf32": str(int(row.options.get("precision") == "tf32"))}
    session = onnxruntime.InferenceSession(file, providers=[(provider, options)])
    return Peer("onnxruntime", lambda: session.run(None, given))


# ---- measuring ---------------------------------------------------------------------------------

_REPEATS = 20


def repeated(work: Callable[[], None], wait: Callable[[], None]) -> None:
    """Work several times, and wait for it."""
    for _ in range(_REPEATS):
        work()
    wait()


def least(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Milliseconds of each call, in turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(1e3 * seconds(call))
    return {name: min(times) for name, times in found.items()}


def measured(
    row: Row, device: Repeating, model: ad.Model, given: Inputs, right: list[numpy.ndarray],
    rounds: int,
) -> str:  # fmt: skip
    """A line of figures for some inputs."""
    found = results(model, given)
    device.synchronise()
    apart = difference(found, right)
    peer = torch_peer(row, given) or onnxruntime_peer(row, given)
    calls: dict[str, Callable[[], Any]] = {"call": partial(model, **given)}
    if peer is not None:
        calls["peer's call"] = peer.call
    times = least(calls, rounds)
    device.record_call(partial(results, model, given))
    kernels = {"kernels": partial(repeated, device.again, device.synchronise)}
    if peer is not None and peer.kernels is not None:
        kernels["peer's kernels"] = peer.kernels
    times |= {name: time / _REPEATS for name, time in least(kernels, rounds).items()}
    parts = [f"call {times['call']:9.3f}", f"kernels {times['kernels']:9.3f}"]
    if row.flops is not None:
        parts.append(f"{row.flops(given) / times['kernels'] / 1e9:7.2f} Tflop/s")
    for name in ("call", "kernels"):
        if peer is not None and f"peer's {name}" in times:
            beside = times[f"peer's {name}"]
            parts.append(f"{peer.name} {name} {beside:9.3f} ratio {times[name] / beside:5.2f}")
    return "  ".join([*parts, f"difference {apart:.1e}"])


def compare(name: str, row: Row, device: Repeating, rounds: int) -> None:
    """Print a line for each of its inputs."""
    placed = {"devices": {"accel": device}, "placement": {"*": "accel"}}
    begin = time.perf_counter()
    try:
        with settings.override(cublaslt=not row.own):
            model = ad.compile(row.source(), **placed, **row.options)
    except OptionError as error:  # a library that is not here
        print(f"{name}: {error}")
        return
    print(f"{name}: compiled in {time.perf_counter() - begin:.1f} s")
    host = ad.compile(row.source(), strategy="generic")
    for size, given in row.inputs().items():
        right = results(host, given)
        print(f"  {size:>14}  {measured(row, device, model, given, right, rounds)}", flush=True)
        model.trim()


def opened(name: str, graphs: int) -> Repeating:
    """The device of a name. Raises DeviceError where there is none."""
    driver, number = driver_of(name)
    if driver is not driver_of("cuda")[0]:
        raise DeviceError(f"'{name}' is no CUDA device", "python -m bench.opencl is for others")
    return Repeating(name, number, graphs)


def main(arguments: list[str] | None = None) -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", default="", help="what has this word in its name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--graphs", type=int, default=0, help="captured graphs that are kept")
    given = parser.parse_args(arguments)
    try:
        device = opened(given.device, given.graphs)
    except DeviceError as error:
        print(f"no device: {error}")
        return 1
    print(f"{given.device}: {device.about.about}")
    for name, row in rows().items():
        if given.only in name:
            compare(name, row, device, given.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
