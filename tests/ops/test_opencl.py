"""Every operator of the library means the same on an OpenCL device, at the sizes of all tests."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import convert_array
from anydim.compiler.graph.operator import OPERATORS
from anydim.runtime.devices.opencl.device import OpenClDevice
from tests.kernel_targets import needs_device
from tests.ops.cases import CASES
from tests.ops.test_operators import ALL, SIZES, build, feed

QUICK = ("softmax", "matmul", "conv", "gather", "where", "cast")
PARTLY = ("non_max_suppression_fill", "unique_fill")  # filled as far as a count says
KNOWN = [(name, number) for name, number in ALL if name not in (*QUICK, *PARTLY)]

pytestmark = needs_device


def run(name: str, number: int, device: object = "opencl:0") -> None:
    case = CASES[name][number]
    graph = build(name, case)
    host = ad.compile(graph)
    model = ad.compile(graph, devices={"accel": device}, placement={"*": "accel"})
    for n, m in SIZES:
        values = feed(graph, case, OPERATORS[name].domain, {"n": n, "m": m})
        if name == "batch_norm":
            values["x4"] = np.abs(values["x4"])
        for each in (model, host):  # some no input tells
            asked = [dim for dim, _ in each.executable.interface.requested_dims]
            each.set_sizes(**{dim: {"n": n, "m": m}[dim] for dim in asked})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, expected = (as_arrays(each(**values)) for each in (model, host))
        for made, right in zip(found, expected):
            assert made.dtype == right.dtype and made.shape == right.shape
            if made.dtype.kind == "V":
                made, right = (convert_array(a, np.dtype(np.float64)) for a in (made, right))
            # roots of quotients and the like are rounded apart by compilers of devices
            np.testing.assert_allclose(made, right, rtol=2e-6, atol=2e-6, err_msg=f"{n}, {m}")


def as_arrays(results: object) -> list[np.ndarray]:
    if isinstance(results, dict):
        return list(results.values())
    return list(results) if isinstance(results, (tuple, list)) else [np.asarray(results)]


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("name", [name for name in QUICK if name in CASES])
def test_some_operators(name: str) -> None:
    run(name, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "matmul", "conv"])
def test_groups(name: str) -> None:
    """What devices that are no processors are given."""
    device = OpenClDevice()
    device.target = "opencl-groups"
    run(name, 0, device)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), KNOWN, ids=[f"{a}-{b}" for a, b in KNOWN])
def test_operator(name: str, number: int) -> None:
    run(name, number)
