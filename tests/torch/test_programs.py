"""Promise: exported programs keep their dims, state, names and weights; refusals say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402

import anydim as ad  # noqa: E402
from anydim.compiler.frontends.torch.importer import Program, import_graph  # noqa: E402
from anydim.compiler.frontends.torch.opening import open_source  # noqa: E402


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) / x.shape[0]


def exported(module: torch.nn.Module, *inputs: torch.Tensor, shapes: object = None) -> object:
    return torch.export.export(module, inputs, dynamic_shapes=shapes)


def test_dims_have_the_names_and_bounds_of_the_export() -> None:
    shapes = ({0: Dim("rows", min=1, max=9)},)
    model = ad.compile(Scale(), (torch.ones(3, 4),), dynamic_shapes=shapes)
    assert str(model.dims) == "rows=1..9"
    program = exported(Scale(), torch.ones(3, 4), shapes=shapes)
    assert str(ad.compile(program).dims) == "x.0=1..9"
    assert str(ad.compile(program, dynamic_shapes=shapes).dims) == "rows=1..9"
    assert str(ad.compile(program, {"x.0": (2, 5)}).dims) == "x.0=2..5"


def test_derived_dims_are_expressions() -> None:
    class Join(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + b[::2]

    n = Dim("n", max=100)
    model = ad.compile(Join(), (torch.ones(3), torch.ones(6)), dynamic_shapes=({0: n}, {0: 2 * n}))
    assert [str(spec.shape[0]) for spec in model.inputs] == ["n", "2*n"]
    for size in (1, 5, 17):
        found = model(torch.ones(size), torch.arange(2.0 * size))["output"]
        torch.testing.assert_close(found, 1 + torch.arange(0, 2.0 * size, 2))


def test_weights_share_memory_with_the_module() -> None:
    module = Scale()
    program = exported(module, torch.ones(3, 4), shapes=({0: Dim("n")},))
    names = [n for n in program.graph.nodes if n.op == "placeholder" and n.name.startswith("p_")]
    constants = {n.name: program.state_dict["inner." + n.name.split("_")[-1]] for n in names}
    made = import_graph(Program("m", program.run_decompositions().graph_module, constants))
    addresses = {c.array.__array_interface__["data"][0] for c in made.graph.constants.values()}
    assert module.inner.weight.data_ptr() in addresses


def test_nodes_are_named_by_module() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.Sequential(Scale(), torch.nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.encoder(x)

    model = ad.compile(Net(), (torch.ones(3, 4),), dynamic_shapes=({0: Dim("n")},))
    assert any("encoder.0.inner/linear" in node.source for node in model.graph.nodes)


class Running(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return x - self.total


def test_buffers_are_written_back_at_each_call() -> None:
    ours, theirs = Running(), Running()
    model = ad.compile(ours, (torch.ones(2, 3),), dynamic_shapes=({0: Dim("n")},))
    for rows in (1, 4, 0, 2):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(model(x)["output"], theirs(x))
        torch.testing.assert_close(ours.total, theirs.total)
    assert [spec.name for spec in model.inputs] == ["x"]
    assert [spec.name for spec in model.outputs] == ["output"]
    with pytest.raises(ad.InputError, match="owns 'total'"):
        model(x=torch.ones(2, 3), total=torch.ones(3))


def _replaced(net: Running) -> None:
    net.total = torch.full((3,), 9.0)


def _data_swapped(net: Running) -> None:
    net.total.data = torch.full((3,), 9.0)


def _loaded(net: Running) -> None:
    net.load_state_dict({"total": torch.full((3,), 9.0)})


def _assigned(net: Running) -> None:
    net.load_state_dict({"total": torch.full((3,), 9.0)}, assign=True)


@pytest.mark.parametrize("change", [_replaced, _data_swapped, _loaded, _assigned])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_buffer_that_changes_between_calls(change: Any, dtype: torch.dtype) -> None:
    """The model keeps the memory that the buffer had when it was compiled."""
    net = Running().to(dtype)
    model = ad.compile(net, (torch.ones(2, 3, dtype=dtype),), dynamic_shapes=({0: Dim("n")},))
    x = torch.ones(4, 3, dtype=dtype)
    model(x)
    held = model.state["total"]
    change(net)
    for _ in range(2):
        before = held.clone()
        torch.testing.assert_close(model(x)["output"], x - before - 4)
        torch.testing.assert_close(held, before + 4)
    assert (net.total.data_ptr() == held.data_ptr()) == (change is _loaded)


def test_a_state_that_is_replaced() -> None:
    """Arrays of numpy and tensors, with gradients too, take the place of a buffer, and a call
    writes where the memory of a tensor is then."""
    model = ad.compile(Running(), (torch.ones(2, 3),), dynamic_shapes=({0: Dim("n")},))
    first, x = model.state["total"], torch.ones(4, 3)
    for made in (numpy.zeros(3, numpy.float32), torch.zeros(3), torch.zeros(3, requires_grad=True)):
        model.state["total"] = made
        with torch.no_grad():
            assert model(x)["output"].tolist() == [[-3.0] * 3] * 4
        assert made.tolist() == [4.0] * 3 and first.tolist() == [0.0] * 3
    with pytest.raises(ad.InputError, match="requires gradients"):
        model(x)
    model.state["total"] = held = torch.zeros(3)
    for memory in (torch.zeros(3), torch.zeros(3, 2)[:, 1], torch.zeros(6)[::2]):
        held.data = memory
        assert model(x)["output"].tolist() == [[-3.0] * 3] * 4
        assert memory.tolist() == held.tolist() == [4.0] * 3
    model.state["total"] = numpy.zeros(3, numpy.float32)
    model.state["total"].flags.writeable = False
    with pytest.raises(ad.InputError, match="'total' of Running, which a call writes to, is read"):
        model(x)


def test_written_inputs_are_written_back() -> None:
    class Add(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x * 2

    model = ad.compile(Add(), (torch.ones(2),), dynamic_shapes=({0: Dim("n")},))
    x = torch.zeros(5)
    torch.testing.assert_close(model(x)["output"], torch.full((5,), 2.0))
    torch.testing.assert_close(x, torch.ones(5))


def test_branches_and_loops() -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))

    model = ad.compile(Branch(), (torch.ones(3),), dynamic_shapes=({0: Dim("n", min=1)},))
    for x in (torch.ones(5), -torch.ones(7)):
        torch.testing.assert_close(model(x)["output"], Branch()(x))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_layers_keep_their_length_free(kind: str, batch_first: bool) -> None:
    layer = getattr(torch.nn, kind)(3, 5, 2, batch_first=batch_first, bidirectional=True).eval()
    shapes = ({0: Dim("a"), 1: Dim("b")},)
    model = ad.compile(layer, (torch.randn(4, 6, 3),), dynamic_shapes=shapes)
    for size in ((1, 1, 3), (7, 2, 3), (3, 19, 3)):
        x = torch.randn(size)
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(layer(x))
        for ours, theirs in zip(torch.utils._pytree.tree_leaves(model(x)), wanted):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_sizes_that_data_decide_need_no_break() -> None:
    class Pick(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            kept = x[x > 0]
            return kept * 2, torch.nonzero(x), kept.shape[0] + x.shape[0]

    model = ad.compile(Pick(), (torch.randn(6),), dynamic_shapes=({0: Dim("n")},))
    for size in (0, 1, 9, 40):
        x = torch.randn(size)
        first, second, third = model(x)
        torch.testing.assert_close(first, x[x > 0] * 2)
        torch.testing.assert_close(second, torch.nonzero(x))
        assert int(third) == int((x > 0).sum()) + size


def test_a_file_is_compiled_inspected_and_saved(tmp_path: Path) -> None:
    program = exported(Scale(), torch.ones(3, 4), shapes=({0: Dim("n", min=1, max=9)},))
    path = tmp_path / "scale.pt2"
    torch.export.save(program, path)
    outline = ad.inspect(path)
    assert (outline.constants, outline.weight_bytes, str(outline.dims)) == (2, 160, "x.0=1..9")
    ad.compile(path).save(tmp_path / "scale.anydim")
    x = torch.randn(5, 4)
    found = ad.load(tmp_path / "scale.anydim")(x.numpy())["output"]
    with torch.no_grad():
        numpy.testing.assert_allclose(found, program.module()(x).numpy(), rtol=1e-5, atol=1e-6)


class Modes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eig(x)[0].abs()


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.modes = Modes()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.modes(x)


def test_a_refusal_names_the_overload_and_the_module() -> None:
    with pytest.raises(ad.ModelError) as caught:
        ad.compile(Net(), (torch.randn(8, 4, 4),), dynamic_shapes=({0: Dim("n", min=2)},))
    assert str(caught.value) == (
        "Net: these operators cannot be compiled: "
        "aten.linalg_eig.default (modes/linalg_eig): not supported\n"
        "  write them with other operators of torch, or run this part in torch\n"
        '(documentation: "Operators of torch")'
    )


@pytest.mark.parametrize(
    ("source", "arguments", "text"),
    [
        (Scale(), None, "the example arguments of a module are None"),
        (torch.ones(3), None, "cannot compile a value of type Tensor"),
    ],
)
def test_a_wrong_source_is_an_error(source: object, arguments: object, text: str) -> None:
    with pytest.raises(ad.OptionError, match=text):
        ad.compile(source, arguments)


def test_bounds_outside_those_of_the_export_are_an_error() -> None:
    program = exported(Scale(), torch.ones(3, 4), shapes=({0: Dim("n", max=9)},))
    with pytest.raises(ad.OptionError, match=r"'x.0' is 1..20, but the program was exported for"):
        ad.compile(program, {"x.0": (1, 20)})
    with pytest.raises(ad.OptionError, match="the program has no dim 'batch'"):
        ad.compile(program, {"batch": (1, 2)})


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "broken.pt2"
    path.write_bytes(b"no archive")
    with pytest.raises(ad.ModelError, match=r"broken.pt2 cannot be read"):
        ad.compile(path)


def test_torch_is_not_imported_before_it_is_used() -> None:
    import subprocess
    import sys

    code = "import anydim as ad, sys; g = ad.Builder(); x = g.input('x', 'float32', ('n',)); "
    code += "g.output('y', g.exp(x)); ad.compile(g); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


class Resized(torch.nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, **self.options)


@pytest.mark.parametrize(("factor", "operators"), [(2.0, ["resize"]), (0.5, ["resize"]), (1.7, [])])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_resampling_by_a_factor(mode: str, factor: float, operators: list[str]) -> None:
    """One operator if sizes of the result are expressions; torch's decomposition otherwise."""
    module = Resized(scale_factor=factor, mode=mode)
    shapes = ({0: Dim("n"), 2: Dim("h", min=4, max=99), 3: Dim("w", min=4, max=99)},)
    x = torch.randn(2, 3, 10, 8)
    nodes = open_source(module, (x,), shapes).graph.nodes
    assert [node.operator for node in nodes if node.operator == "resize"] == operators
    model = ad.compile(module, (x,), dynamic_shapes=shapes)
    for batch, height, width in ((2, 10, 8), (1, 4, 7), (3, 31, 13)):
        x = torch.randn(batch, 3, height, width)
        torch.testing.assert_close(model(x)["output"], module(x), rtol=1e-4, atol=1e-5)


def test_pooling_of_whole_images_is_one_mean() -> None:
    module = torch.nn.AdaptiveAvgPool2d(1)
    shapes = ({0: Dim("n"), 2: Dim("h", min=2), 3: Dim("w", min=2)},)
    nodes = open_source(module, (torch.ones(2, 3, 4, 5),), shapes).graph.nodes
    assert [node.operator for node in nodes].count("reduce_mean") == 1


def test_sizes_that_only_assertions_read_are_not_computed() -> None:
    """torch asserts where in the memory of x the parts begin; a graph has no such number."""

    class Parts(torch.nn.Module):
        def forward(self, x: torch.Tensor, ends: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.tensor_split(x, ends)

    x = torch.arange(12.0).reshape(6, 2)
    shapes = ({0: Dim("n")}, None)
    model = ad.compile(Parts(), (x, torch.tensor([1, 4])), dynamic_shapes=shapes)
    for count, ends in ((6, (1, 4)), (9, (0, 9)), (2, (1, 1))):
        x = torch.rand(count, 2)
        found = model(x, torch.tensor(ends))
        for own, wanted in zip(found, torch.tensor_split(x, ends), strict=True):
            torch.testing.assert_close(own, wanted)
