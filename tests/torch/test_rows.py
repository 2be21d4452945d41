"""Promise: rows that torch's operator database reaches at few sizes equal eager torch at many."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

import anydim as ad  # noqa: E402
from tests.torch.compiling import Applied  # noqa: E402


def compiled(function: Any, *tensors: Any, fixed: tuple[tuple[int, int], ...] = ()) -> Any:
    """The model of a function; all axes are free but `fixed` (number, axis)."""
    auto = torch.export.Dim.AUTO
    shapes = tuple(
        {axis: auto for axis in range(t.dim()) if (number, axis) not in fixed}
        for number, t in enumerate(tensors)
    )
    return ad.compile(torch.export.export(Applied(function), tensors, dynamic_shapes=(shapes,)))


def check(model: Any, function: Any, *tensors: Any) -> None:
    """Compare with eager torch: float32 sums of at most some hundred terms."""
    wanted = function(*tensors)
    wanted = [wanted] if torch.is_tensor(wanted) else list(wanted)
    for ours, theirs in zip(torch.utils._pytree.tree_leaves(model(*tensors)), wanted, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 1.5])
def test_segments(reduce: str, initial: float | None) -> None:
    def of_lengths(x: Any, lengths: Any) -> Any:
        return torch.segment_reduce(x, reduce, lengths=lengths, unsafe=True, initial=initial)

    def of_offsets(x: Any, offsets: Any) -> Any:
        return torch.segment_reduce(
            x, reduce, offsets=offsets, unsafe=True, initial=initial, axis=1
        )

    lengths = torch.tensor([2, 0, 3])
    model = compiled(of_lengths, torch.randn(5, 2), lengths)
    check(model, of_lengths, torch.randn(5, 3), lengths)
    check(model, of_lengths, torch.randn(17, 1), torch.tensor([1, 7, 0, 0, 9]))
    check(model, of_lengths, torch.randn(0, 2), torch.tensor([0, 0]))
    model = compiled(of_offsets, torch.randn(2, 5), torch.tensor([[0, 2, 5], [0, 0, 5]]))
    check(model, of_offsets, torch.randn(1, 7), torch.tensor([[0, 0, 3, 3, 7]]))
    check(model, of_offsets, torch.randn(3, 1), torch.tensor([[0, 1], [0, 1], [0, 1]]))


def test_segments_end_within_the_axis() -> None:
    def total(x: Any, lengths: Any) -> Any:
        return torch.segment_reduce(x, "sum", lengths=lengths, unsafe=True)

    model = compiled(total, torch.randn(5), torch.tensor([2, 3]))
    with pytest.raises(ad.UserError):
        model(torch.randn(5), torch.tensor([2, 4]))


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "int64", "int8", "uint8", "bool"]
)
@pytest.mark.parametrize("dims", [(), (1,), (0, 2)])
def test_hashes_of_tensors(dtype: str, dims: tuple[int, ...]) -> None:
    kind = getattr(torch, dtype)

    def hashed(x: Any) -> Any:
        return torch.hash_tensor(x, dims), torch.hash_tensor(x, dims, keepdim=True)

    def drawn(*shape: int) -> Any:
        return (100 * torch.randn(shape)).to(kind)

    for shape in ((1, 1, 1), (3, 2, 5), (7, 17, 3)):  # torch fixes the sizes at the export
        x = drawn(*shape)
        check(compiled(hashed, x), hashed, x)


@pytest.mark.parametrize("kernel", [2, (3, 2)])
def test_fractional_pools_of_planes(kernel: Any) -> None:
    def pooled(x: Any, samples: Any) -> Any:
        return functional.fractional_max_pool2d_with_indices(
            x, kernel, output_size=(4, 3), _random_samples=samples
        )

    model = compiled(pooled, torch.randn(2, 3, 9, 8), torch.rand(2, 3, 2), fixed=((1, 2),))
    for batch, channels, rows, columns in ((2, 3, 9, 8), (3, 2, 17, 11), (5, 1, 7, 19)):
        x = torch.randn(batch, channels, rows, columns)
        check(model, pooled, x, torch.rand(batch, channels, 2))


def test_fractional_pools_of_volumes() -> None:
    def pooled(x: Any, samples: Any) -> Any:
        return functional.fractional_max_pool3d_with_indices(
            x, (2, 1, 3), output_size=(3, 1, 2), _random_samples=samples
        )

    for shape in ((2, 3, 6, 5, 8), (1, 2, 7, 11, 5)):  # torch fixes the sizes at the export
        x, samples = torch.randn(shape), torch.rand(*shape[:2], 3)
        model = compiled(pooled, x, samples)
        check(model, pooled, x, samples)


@pytest.mark.parametrize("bias", [False, True])
def test_convolution_with_groups_of_free_channels(bias: bool) -> None:
    def convolved(x: Any, weight: Any, *shift: Any) -> Any:
        return functional.conv1d(x, weight, *shift, padding=1, groups=3)

    def drawn(outputs: int, inner: int) -> list[Any]:
        given = [torch.randn(2, 3 * inner, 7), torch.randn(outputs, inner, 3)]
        return given + ([torch.randn(outputs)] if bias else [])

    model = compiled(convolved, *drawn(6, 2), fixed=((0, 1), (1, 2)))
    for outputs in (6, 3, 15):
        check(model, convolved, *drawn(outputs, 2))
    with pytest.raises(ad.UserError):
        model(*drawn(7, 2))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_by_chunks(reduction: str, weighted: bool) -> None:
    options = pytest.importorskip("torch.nn.modules.linear_cross_entropy_options")
    settings = options.LinearCrossEntropyOptions(batch_chunk_size=2)

    def loss(x: Any, matrix: Any, target: Any, weight: Any) -> Any:
        return functional.linear_cross_entropy(
            x, matrix, target, weight=weight if weighted else None, reduction=reduction,
            ignore_index=1, options=settings,
        )  # fmt: skip

    def drawn(rows: int, classes: int) -> list[Any]:
        x, matrix = torch.randn(rows, 4), torch.randn(classes, 4)
        return [x, matrix, torch.randint(classes, (rows,)), torch.rand(classes)]

    for rows, classes in ((7, 5), (3, 2), (17, 11)):  # torch fixes the rows at the export
        given = drawn(rows, classes)
        check(compiled(loss, *given, fixed=((0, 0), (2, 0))), loss, *given)


def test_gradients_of_losses_by_chunks() -> None:
    pytest.importorskip("torch.nn.modules.linear_cross_entropy")

    def both(x: Any, matrix: Any, target: Any, bias: Any) -> Any:
        operator = torch.ops.torch_nn._linear_cross_entropy_batch_chunked
        return operator(
            x, matrix, target, bias, None, "mean", -100, 0.0, 2, "keep", torch.float32, True,
            True, True, True,
        )  # fmt: skip

    def drawn(rows: int, classes: int) -> list[Any]:
        x, matrix = torch.randn(rows, 4), torch.randn(classes, 4)
        return [x, matrix, torch.randint(classes, (rows,)), torch.randn(classes)]

    model = compiled(both, *drawn(7, 5))
    for rows in (7, 2, 13):
        check(model, both, *drawn(rows, 5))


class Doubled(torch.nn.Module):
    """A parameter that each call doubles."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.scale.mul_(2)
        return x + self.scale


def test_parameters_are_written() -> None:
    module, eager = Doubled(), Doubled()
    x = torch.randn(2, 3)
    model = ad.compile(module, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    for rows in (2, 5, 1):
        x = torch.randn(rows, 3)
        (found,) = model(x).values()
        torch.testing.assert_close(found, eager(x).detach())
        torch.testing.assert_close(module.scale, eager.scale)


@pytest.mark.parametrize("norm", [2.0, 1.0, 3.5, float("inf")])
def test_embeddings_of_a_largest_norm(norm: float) -> None:
    module = torch.nn.Embedding(7, 3, max_norm=1.0, norm_type=norm)
    eager = copy.deepcopy(module)
    shapes = ({0: torch.export.Dim.AUTO},)
    model = ad.compile(module, (torch.tensor([0, 1, 1]),), dynamic_shapes=shapes)
    for indices in ([0, 1, 1], [2], [6, 6, 3, 2, 5, 4], []):
        given = torch.tensor(indices, dtype=torch.int64)
        (found,) = model(given).values()
        torch.testing.assert_close(found, eager(given).detach())
        torch.testing.assert_close(module.weight, eager.weight)


@pytest.mark.parametrize("divisor", [None, 3, 7, -2])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_average_pools_of_integers(divisor: int | None, ceil_mode: bool) -> None:
    def pooled(x: Any) -> Any:
        return functional.avg_pool2d(
            x, (3, 2), stride=2, padding=1, ceil_mode=ceil_mode, divisor_override=divisor
        )

    model = compiled(pooled, torch.randint(-50, 50, (2, 3, 9, 8)))
    for shape in ((2, 3, 9, 8), (1, 1, 2, 1), (3, 2, 17, 11)):
        check(model, pooled, torch.randint(-50, 50, shape))


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32", "bfloat16"])
def test_outer_products_added(dtype: str) -> None:
    def added(bias: Any, a: Any, b: Any) -> Any:
        numbers = (True, False) if dtype == "bool" else (2, 3)
        return torch.addr(bias, a, b), torch.addr(bias, a, b, beta=numbers[0], alpha=numbers[1])

    def drawn(rows: int, columns: int) -> list[Any]:
        given = [torch.randint(-1, 2, shape) for shape in ((rows, columns), (rows,), (columns,))]
        return [each.to(getattr(torch, dtype)) for each in given]

    model = compiled(added, *drawn(3, 4))
    for sizes in ((3, 4), (1, 7), (5, 2)):
        check(model, added, *drawn(*sizes))


@pytest.mark.parametrize("small", [False, True], ids=["usual", "small diagonals"])
def test_symmetric_factorisations(small: bool) -> None:
    """In float64: pivots are those of LAPACK; small diagonals need steps over two rows."""

    def solved(x: Any, b: Any) -> Any:
        factors, pivots = torch.linalg.ldl_factor(x)
        return factors, pivots, torch.linalg.ldl_solve(factors, pivots, b)

    def drawn(batch: int, size: int, columns: int) -> list[Any]:
        half = torch.randn(batch, size, size, dtype=torch.float64)
        x = half + half.mT
        x = x - (0.99 * torch.diag_embed(x.diagonal(dim1=1, dim2=2)) if small else 0)
        return [x, torch.randn(batch, size, columns, dtype=torch.float64)]

    model = compiled(solved, *drawn(2, 5, 3))
    for sizes in ((2, 5, 3), (1, 1, 1), (3, 2, 7), (2, 17, 2), (5, 3, 0), (0, 3, 2)):
        check(model, solved, *drawn(*sizes))


def test_bits_as_a_type_of_another_width() -> None:
    def views(x: Any, mask: Any) -> Any:
        kinds = (torch.uint8, torch.bfloat16, torch.int64)
        return *(x.view(kind).clone() for kind in kinds), mask.view(torch.int8) + 1

    def halves(x: Any) -> Any:
        return x.view(torch.int32).clone(), (x.view(torch.uint8) & 1).view(torch.bool)

    model = compiled(views, torch.randn(3, 4), torch.tensor([True, False]), fixed=((0, 1),))
    x = torch.randn(5, 4)
    x[0, 1] = math.nan
    for rows in (x, x[:0]):
        found = torch.utils._pytree.tree_leaves(model(rows, rows[:, 0] > 0))
        for ours, theirs in zip(found, views(rows, rows[:, 0] > 0), strict=True):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))
    x = torch.randint(-9, 9, (3, 8), dtype=torch.int16)
    check(compiled(halves, x, fixed=((0, 1),)), halves, x[:2])


def test_signs_of_no_number_are_zero() -> None:
    def signs(x: Any) -> Any:
        return x.sign(), x.sgn(), x.bfloat16().sign()

    x = torch.tensor([math.nan, math.inf, -math.inf, -2.0, 0.0])
    check(compiled(signs, torch.ones(3)), signs, x)
