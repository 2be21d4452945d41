"""Host time of launches on a CUDA device, with a driver that does nothing; no device is needed.

    python -m bench.cuda_host [--only decoder] [--rounds 200]

NVRTC compiles the kernels of MiniLM and of a decoder's step. A C library in place of the driver
returns at once, so the time of a call is the host's alone: checks, sizes, copies of inputs to the
stage, and launches. Calls by native entry points, by them with captured graphs, and by way of
Python alternate; medians of calls, in microseconds. `staying`: arrays of the device in place of
inputs, and results that stay there, but for the last one.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy

import anydim as ad
from anydim.base.errors import OptionError
from anydim.runtime.devices.cuda import CudaDevice
from anydim.runtime.devices.device_array import DeviceArray
from anydim.runtime.devices.libcuda import CALLS, Library
from bench.opencl import WORK

MODELS = ("MiniLM", "decoder")
_GRAPHS = 64  # captured graphs of the device that has them
# functions with results; the others return 0
_TEXT = """
#include <stdlib.h>
#include <string.h>
static long long last = 16;
#define GIVES(name) int name(long long *made) { *made = ++last; return 0; }
GIVES(cuDevicePrimaryCtxRetain) GIVES(cuStreamCreate) GIVES(cuModuleLoadData)
GIVES(cuModuleGetFunction) GIVES(cuGraphInstantiateWithFlags) GIVES(cuEventCreate)
int cuStreamEndCapture(void *stream, long long *made) { *made = ++last; return 0; }
int cuDeviceGetCount(int *made) { *made = 1; return 0; }
int cuDeviceGet(int *made) { *made = 0; return 0; }
int cuDeviceGetName(char *text, int size) { strncpy(text, "no device", size); return 0; }
int cuDeviceGetAttribute(int *made, int which) {
  *made = which == 75 ? 9 : which == 76 ? 0 : 132;
  return 0;
}
int cuDeviceTotalMem_v2(size_t *made) { *made = (size_t)1 << 36; return 0; }
int cuMemAlloc_v2(void **made, size_t bytes) { return posix_memalign(made, 256, bytes); }
int cuMemFree_v2(void *given) { free(given); return 0; }
int cuMemHostAlloc(void **made, size_t bytes) { return posix_memalign(made, 256, bytes); }
int cuModuleGetGlobal_v2(void *made) { return 0; }
int cuFuncGetAttribute(int *made) { *made = 128; return 0; }
int cuGetErrorString(int code, const char **text) { *text = "refused"; return 0; }
"""


class ByPython(CudaDevice):
    """Verbs of a subclass are its own: each is a call of Python."""


def library(folder: str) -> Library:
    """Compile the driver that does nothing."""
    source, made = Path(folder, "driver.c"), Path(folder, "driver.so")
    given = [name for name in CALLS if f"{name}(" not in _TEXT and f"({name})" not in _TEXT]
    text = _TEXT + "".join(f"int {name}(void) {{ return 0; }}\n" for name in given)
    source.write_text(text, "utf-8")
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-w", str(source), "-o", str(made)], check=True
    )
    return Library(ctypes.CDLL(str(made)))


def resident(device: CudaDevice, array: numpy.ndarray) -> DeviceArray:
    """A copy on a device, which is never freed."""
    address = device.allocate(max(64, array.nbytes))
    device.copy_in(address, array.ctypes.data, array.nbytes)
    return DeviceArray(device, address, array.shape, array.dtype)


def measure(name: str, driver: Library, rounds: int) -> None:
    """Print a line for each size of a model's inputs."""
    devices = {
        "native": CudaDevice("cuda:0", 0, driver, graphs=0),
        "graphs": CudaDevice("cuda:0", 0, driver, graphs=_GRAPHS),
        "Python": ByPython("cuda:0", 0, driver, graphs=0),
        "staying": CudaDevice("cuda:0", 0, driver, graphs=0),
    }
    placed = {"placement": {"*": "accel"}}
    models = {
        kind: ad.compile(WORK[name].source(), devices={"accel": device}, **placed)
        for kind, device in devices.items()
    }
    staying = models["staying"].executable
    results = [spec.key for spec in staying.signature.outputs if spec.name in staying.resident]
    models["staying"].keep_on_device(*results[1:])
    for size, inputs in WORK[name].inputs().items():
        given = dict.fromkeys(models, inputs)
        given["staying"] = {
            key: resident(devices["staying"], array) if key in staying.resident else array
            for key, array in inputs.items()
        }
        times: dict[str, list[int]] = {kind: [] for kind in models}
        before = devices["native"].counters
        for _ in range(rounds):
            for kind, model in models.items():
                begin = time.perf_counter_ns()
                model(**given[kind])
                times[kind].append(time.perf_counter_ns() - begin)
        now = devices["native"].counters
        launches = (now.launches - before.launches) / rounds
        copies = (now.copies - before.copies) / rounds
        found = "  ".join(f"{kind} {median(each) / 1e3:8.1f}" for kind, each in times.items())
        print(f"{name:>9} {size:>12}: {launches:g} launches, {copies:g} copies  {found} us a call")


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--only", default="", choices=("", *MODELS))
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anydim-") as folder:
        driver = library(folder)
        for name in MODELS:
            if given.only in ("", name):
                try:
                    measure(name, driver, given.rounds)
                except OptionError as error:  # NVRTC is missing
                    parser.error(str(error))


if __name__ == "__main__":
    main()
