"""Promise: the command line and the server take models with complex tensors and with state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import anydim as ad
from anydim.cli.app import main
from anydim.runtime.program.callable_program import CallableProgram
from anydim.serving import Batcher
from anydim.serving.server.repository import Repository
from anydim.serving.server.state import tensors_of
from tests.unit.model_kinds.kinds import complexes, floats, made, torch_models

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["complex.anydim", "complex.pt2"])
def test_run(name: str, tmp_path: Path) -> None:
    """Of a program that returns a tuple, too."""
    path, dim = tmp_path / name, "n"
    if name.endswith("pt2"):
        shapes, dim = ({0: torch.export.Dim("n", max=64)},), "z.0"
        module, z = torch_models()["complex"](), torch.from_numpy(complexes(3, 4))
        torch.export.save(torch.export.export(module, (z,), dynamic_shapes=shapes), path)
    else:
        made("complex").save(path)
    np.savez(tmp_path / "in.npz", z=complexes(5, 4))
    out = tmp_path / "out.npz"
    for line in (["--at", f"{dim}=3"], ["--input", str(tmp_path / "in.npz")]):
        done = CliRunner().invoke(main, ["run", str(path), *line, "--output", str(out)])
        assert done.exit_code == 0, done.output
        assert "output_0  complex64" in done.output
    found, z = np.load(out), complexes(5, 4)
    np.testing.assert_allclose(found["output_0"], 2 * z + z.conj(), 1e-5)


def test_a_server_has_pairs_and_functions_of_state(tmp_path: Path) -> None:
    for kind in ("complex", "stateful"):
        made(kind).save(tmp_path / f"{kind}.anydim")
    added: dict[str, CallableProgram] = {}
    repository = Repository([str(tmp_path)], ad.load, added.__setitem__, added.pop)
    inputs, outputs = tensors_of(repository.load("complex"))
    assert [(each["datatype"], each["shape"]) for each in inputs] == [("FP32", [-1, 4, 2])]
    assert outputs[0]["datatype"] == "FP32"
    inputs, outputs = tensors_of(repository.load("stateful"))
    assert [each["name"] for each in inputs] == ["total", "x"]
    total, x = floats(1, 4)[0], floats(3, 4)
    with Batcher(added) as batcher:
        for _ in range(2):  # each client has its own state
            found = batcher({"total": total, "x": x}, "stateful")
            np.testing.assert_allclose(found["total.new"], total + x.sum(0), 1e-5, 1e-5)
            np.testing.assert_allclose(found["output"], x - found["total.new"], 1e-5, 1e-5)
        z = complexes(3, 4)
        found = batcher({"z": z.view(np.float32).reshape(3, 4, 2)}, "complex")
        pairs = found["output_0"].view(np.complex64)[..., 0]
        np.testing.assert_allclose(pairs, 2 * z + z.conj(), 1e-5)
