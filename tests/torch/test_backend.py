"""Promise: torch.compile(backend="anydim") gives eager's results, one compile for all sizes."""

from __future__ import annotations

import copy
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

import anydim as ad  # noqa: E402
import anydim.torch.backend  # noqa: E402  registers the backend
from tests.torch.nets import NETS, Net  # noqa: E402

LIB = ad.define("""
def norm(float(B,C) x, float(C) g) -> (y) {
  s(b) +=! x(b,c) * x(b,c)
  y(b,c) = x(b,c) * rsqrt(s(b) / C + 1e-5) * g(c)
}
def scan(float(B,S,C) x, float(C) d) -> (y) {
  for t in S { y(b,t,c) = sigmoid(d(c)) * (y(b,t-1,c) else 0) + x(b,t,c) }
}
""")


@pytest.fixture(autouse=True)
def anew() -> None:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend="anydim", dynamic=True, **options)


@pytest.mark.parametrize("name", ["encoder", "mobile", "gpt"])
def test_networks_equal_eager(name: str) -> None:
    net: Net = next(each for each in NETS if each.name == name)
    module = net.module().eval()
    call = compiled(module)
    for sizes in (net.example, *net.others):
        inputs = net.inputs(*sizes)
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(module(*inputs))
            found = torch.utils._pytree.tree_leaves(call(*inputs))
        for ours, theirs in zip(found, wanted):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_twenty_sizes_are_one_compile() -> None:
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).eval()
    call = compiled(module, fullgraph=True)
    with torch.no_grad():
        for rows in range(2, 22):
            x = torch.randn(rows, 3 + rows % 5, 8)
            torch.testing.assert_close(call(x), module(x), rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 1


def test_sizes_equal_in_the_first_call_may_differ_later() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval()
    call = compiled(module, fullgraph=True)
    with torch.no_grad():
        for batch, length in ((8, 8), (8, 5), (5, 8), (3, 7)):
            x = torch.randn(batch, length, 8)
            torch.testing.assert_close(call(x), module(x), rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 1


class Own(nn.Module):
    """A definition in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.gain = nn.Parameter(torch.ones(16))

    def forward(self, x: Any) -> Any:
        return self.last(LIB.norm(torch.relu(self.first(x)), self.gain))


class Scan(nn.Module):
    """A recurrence in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.decay = nn.Parameter(torch.zeros(16))

    def forward(self, x: Any) -> Any:
        made = self.first(x.unflatten(0, (-1, 2)).transpose(0, 1))
        return self.last(LIB.scan(made, self.decay)).flatten(0, 1)


class Convolutional(nn.Module):
    """Convolution and batch norm, whose buffers a training step writes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv1d(1, 6, 3), nn.BatchNorm1d(6), nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return self.last(torch.relu(self.norm(self.conv(x[:, None]))).mean(-1))


class Encoder(nn.Module):
    """A transformer layer over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.last(self.layer(self.first(x)[None])[0])


@pytest.mark.parametrize("kind", [Own, Scan, Convolutional, Encoder])
def test_training_equals_eager(kind: Any) -> None:
    eager = kind()
    module = copy.deepcopy(eager)
    call = compiled(module)
    both = [torch.optim.SGD(each.parameters(), 0.1) for each in (eager, module)]
    for step in range(6):
        x, y = torch.randn(4 + 2 * (step % 3), 8), torch.randint(0, 4, (4 + 2 * (step % 3),))
        losses = [nn.functional.cross_entropy(each(x), y) for each in (eager, call)]
        for loss, optimiser in zip(losses, both):
            optimiser.zero_grad()
            loss.backward()
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
        for ours, theirs in zip(module.parameters(), eager.parameters()):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
        for optimiser in both:
            optimiser.step()
    for ours, theirs in zip(module.buffers(), eager.buffers()):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float32, torch.bool])
def test_functions_of_weights_alone(dtype: Any) -> None:
    """No argument of the graph is a tensor."""

    class Weights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3, 4), requires_grad=False)

        def forward(self) -> Any:
            return (self.w + self.w).to(dtype)

    module = Weights()
    call = compiled(module, fullgraph=True)
    for _ in range(3):
        assert torch.equal(call().float(), module().float())
        assert call().dtype == dtype


def test_weights_that_change_are_noticed() -> None:
    module = nn.Linear(4, 3)
    call = compiled(module)
    x = torch.randn(5, 4)
    with torch.no_grad():
        torch.testing.assert_close(call(x), module(x))
        module.weight.mul_(2)
        torch.testing.assert_close(call(x), module(x))


def test_weights_made_in_inference_mode_may_change() -> None:
    """torch does not count the changes of such tensors."""
    with torch.inference_mode():
        module, x = nn.Linear(4, 3), torch.randn(5, 4)
        call = compiled(module)
        torch.testing.assert_close(call(x), module(x))
        module.weight.mul_(2)
        torch.testing.assert_close(call(x), module(x))


def test_what_is_not_supported_runs_in_torch(caplog: Any) -> None:
    def f(x: Any) -> Any:
        return torch.linalg.eig(x)[0].abs().sum() + 1

    x = torch.randn(4, 4)
    with caplog.at_level(logging.WARNING, logger="torch._dynamo.backends.anydim"):
        torch.testing.assert_close(compiled(f)(x), f(x), rtol=1e-4, atol=1e-4)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1 and "a graph runs in torch" in lines[0] and "eig" in lines[0]


def _refused(function: Any, x: Any, caplog: Any) -> Any:
    """The result of a compiled function that runs in torch."""
    with caplog.at_level(logging.WARNING, logger="torch._dynamo.backends.anydim"):
        found = compiled(function)(x)
    assert any("a graph runs in torch" in record.getMessage() for record in caplog.records)
    return found


def test_tensors_without_values_run_in_torch(caplog: Any) -> None:
    found = _refused(lambda x: x @ x.T, torch.randn(3, 4, device="meta"), caplog)
    assert found.device.type == "meta" and found.shape == (3, 3)


def test_tensors_without_values_may_be_made(caplog: Any) -> None:
    _, found = _refused(
        lambda x: (x * 2, torch.empty(x.shape, device="meta")), torch.randn(3, 4), caplog
    )
    assert found.device.type == "meta" and found.shape == (3, 4)


def test_nested_tensors_run_in_torch(caplog: Any) -> None:
    parts = [torch.randn(3, 5), torch.randn(4, 5)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)
    found = _refused(lambda x: x.sin() * 2, x, caplog).unbind()
    for each, part in zip(found, parts):
        torch.testing.assert_close(each, part.sin() * 2)


def test_a_loop_whose_condition_is_one_value() -> None:
    from torch._higher_order_ops import while_loop

    def f(x: Any) -> Any:
        return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))

    call = compiled(f)
    for size in (3, 4, 1, 0):
        x = torch.randn(size)
        torch.testing.assert_close(call(x), f(x))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(Exception, match="the backend has no option 'speed'"):
        compiled(torch.sin, options={"speed": 9})(torch.ones(3))


@pytest.mark.parametrize("first", ["", "import anydim.torch.backend"])
def test_torch_finds_the_backend_by_its_entry_point(first: str, tmp_path: Path) -> None:
    """In a process with the metadata of an installed distribution."""
    text = Path(__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8")
    line = 'anydim = "anydim.torch.backend:backend"'
    assert f'[project.entry-points."torch_dynamo_backends"]\n{line}\n' in text
    folder = tmp_path / "anydim_entry-0.1.dist-info"
    folder.mkdir()
    folder.joinpath("METADATA").write_text(
        "Metadata-Version: 2.1\nName: anydim-entry\nVersion: 0.1\n", "utf-8"
    )
    folder.joinpath("entry_points.txt").write_text(
        f"[torch_dynamo_backends]\n{line.replace(chr(34), '')}\n", "utf-8"
    )
    code = f"{first}\nimport torch\nf = torch.compile(torch.sin, backend='anydim')\n"
    code += "x = torch.ones(3)\ntorch.testing.assert_close(f(x), x.sin())"
    places = [str(tmp_path), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", ["none", "keys", "queries", "both"])
def test_the_fused_layer_of_eager_torch(masked: str, norm_first: bool) -> None:
    """Without gradients `nn.TransformerEncoderLayer` is one operator of torch."""
    module = nn.TransformerEncoderLayer(
        16, 2, 24, 0.0, "gelu" if norm_first else "relu", batch_first=True, norm_first=norm_first
    ).eval()
    call = compiled(module)
    for batch, length in ((2, 5), (3, 9), (4, 3)):
        x = torch.randn(batch, length, 16)
        masks: dict[str, Any] = {}
        if masked in ("keys", "both"):
            masks["src_key_padding_mask"] = torch.arange(length) >= torch.full((batch, 1), 2)
        if masked in ("queries", "both"):
            masks["src_mask"] = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        with torch.no_grad():
            torch.testing.assert_close(call(x, **masks), module(x, **masks), atol=1e-5, rtol=1e-5)


def test_a_definition_has_gradients_in_eager_torch() -> None:
    x, g = torch.randn(3, 4, requires_grad=True), torch.ones(4, requires_grad=True)
    LIB.norm(x, g).sum().backward()
    wanted = torch.autograd.functional.jacobian(
        lambda x: (x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5)).sum(), x.detach()
    )
    torch.testing.assert_close(x.grad, wanted, atol=1e-5, rtol=1e-4)
