"""Promise: the tests of onnx pass on an OpenCL device; what falls to the host is written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from anydim.api.backend import Backend
from tests.conformance import onnx_backend
from tests.conformance.on_devices import page
from tests.kernel_targets import needs_device
from tests.unit.compiler.frontends.models import model, node

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators-on-devices.md"
SHARDS = 8


def test_the_page_is_up_to_date() -> None:
    hint = "run: python -m tests.conformance.on_devices docs/operators-on-devices.md"
    assert PAGE.read_text("utf-8") == page(), hint


def test_names_of_devices() -> None:
    made = model([node("y = Relu(x)")], ["x f[2, 2]"], ["y"])
    assert Backend.supports_device("CPU") and Backend.supports_device("NULL")
    for wrong in ("GPU", "OPENCL:99", "NULL:x"):
        assert not Backend.supports_device(wrong)
    prepared = Backend.prepare(made, device="NULL")
    assert not onnx_backend.on_host(prepared.model)
    assert onnx_backend.on_host(Backend.prepare(made).model)


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("dims", onnx_backend.PASSES)
def test_one_test_of_each_operator_on_opencl(dims: str, shard: int) -> None:
    """Right everywhere; the host computes what is strings and nothing else."""
    known = onnx_backend.known_failures()
    chosen = [case for case in onnx_backend.quick(dims) if (dims, case.name) not in known]
    outcomes = [onnx_backend.run(c, dims, device="OPENCL:0") for c in chosen[shard::SHARDS]]
    failed = [f"{o.case}: {o.reason}" for o in outcomes if o.state == "failed"]
    assert not failed, "\n".join(failed)
    fallen = {o.case: o.host for o in outcomes if o.host}
    assert all(host == ("strings",) for host in fallen.values()), fallen
