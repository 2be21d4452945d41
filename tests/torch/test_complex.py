"""Promise: complex numbers of torch programs, inputs and results included, are torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")

import anydim as ad  # noqa: E402
import anydim.torch.backend  # noqa: E402
from tests.torch.compiling import Applied, anew  # noqa: E402, F401

_SIZES = ((5, 24), (1, 2), (3, 31), (2, 64), (7, 37))  # odd and even lengths
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "rfft": torch.fft.rfft,
    "power": lambda x: torch.fft.rfft(x, norm="ortho").abs() ** 2,
    "fft2": lambda x: torch.fft.fft2(x, norm="forward"),
    "round": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]),
    "round2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x * 2), s=x.shape, norm="backward"),
    "filter": lambda x: torch.fft.ifft(torch.fft.fft(x) * torch.exp(torch.complex(x, -x))).real,
    "hfft": lambda x: torch.fft.hfft(torch.complex(x, x + 1), n=x.shape[1], norm="ortho"),
    "ihfft": lambda x: torch.fft.ihfft(x, norm="forward"),
    "product": lambda x: torch.view_as_real(torch.complex(x, x * 2) @ torch.complex(x.mT, -x.mT)),
    "quotient": lambda x: torch.complex(x, x * 2 + 1) / torch.complex(x + 1, x - 3),
    "polar": lambda x: torch.polar(x, x * 3).angle(),
    "number": lambda x: (torch.complex(x, x) * (1 - 2j) + 2j).conj().imag,
    "log": lambda x: torch.complex(x, x - 2).log().sum(0),
    "parts": lambda x: torch.stack([torch.complex(x, -x), torch.complex(x, x)]).flip(1)[..., ::2],
    "compared": lambda x: torch.complex(x, x) == torch.complex(x, x.round()),
    "true": lambda x: (x * 2 - 1).round().mul(1j).to(torch.bool) * 1,
    "alpha": lambda x: torch.add(x, torch.complex(x, x + 1), alpha=2j).mul(1 + 1j),
    "alpha of real": lambda x: torch.sub(torch.complex(x, -x), x, alpha=1 - 2j),
    "reversed alpha": lambda x: torch.rsub(torch.complex(x, -x), x, alpha=1 - 2j),
    "padded": lambda x: torch.nn.functional.pad(torch.complex(x, x), (1, 2), value=3.0),
}


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_a_program_equals_torch_at_all_sizes(name: str) -> None:
    auto = dict.fromkeys((0, 1), torch.export.Dim.AUTO)
    module = Applied(_FUNCTIONS[name])
    model = ad.compile(module, (torch.rand(5, 24),), dynamic_shapes=((auto,),))
    for sizes in _SIZES:
        x = torch.rand(*sizes, dtype=torch.float32)
        wanted, (found,) = module(x), model(x).values()
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_torch_compile_equals_torch(name: str) -> None:
    """`anew` checks that no graph runs in torch."""
    call = torch.compile(_FUNCTIONS[name], backend="anydim", dynamic=True)
    for sizes in _SIZES:
        x = torch.rand(*sizes)
        torch.testing.assert_close(call(x), _FUNCTIONS[name](x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_inputs_and_results(dtype: Any) -> None:
    x = torch.randn(3, 4, dtype=dtype)
    shapes = (({0: torch.export.Dim("n")},),)
    model = ad.compile(Applied(lambda x: x * 2 + x.conj()), (x,), dynamic_shapes=shapes)
    for count in (0, 1, 5):
        x = torch.randn(count, 4, dtype=dtype)
        (found,) = model(x.mH.contiguous().mH).values()
        torch.testing.assert_close(found, x * 2 + x.conj())
        (array,) = model(x.numpy()).values()
        numpy.testing.assert_allclose(array, (x * 2 + x.conj()).numpy(), rtol=1e-6)


def test_a_real_array_for_a_complex_input_is_an_input_error() -> None:
    model = ad.compile(Applied(lambda x: x * 2), (torch.randn(3, dtype=torch.complex64),))
    with pytest.raises(ad.InputError, match=r"'values_0' .* complex64, got float32"):
        model(torch.rand(3))
    with pytest.raises(ad.InputError, match=r"'values_0' .* complex64, got float32"):
        model(numpy.zeros(3, numpy.float32))


def test_a_row_that_complex_numbers_have_not_is_named() -> None:
    with pytest.raises(ad.ModelError, match=r"aten.tan.default .*complex numbers"):
        ad.compile(Applied(torch.tan), (torch.randn(3, dtype=torch.complex64),))


def test_a_complex_buffer_that_is_written_is_refused() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("sum", torch.zeros(3, dtype=torch.complex64))

        def forward(self, x: Any) -> Any:
            self.sum.add_(x)
            return self.sum * 1

    with pytest.raises(ad.ModelError, match="writes to a complex tensor: sum"):
        ad.compile(Counter(), (torch.randn(3, dtype=torch.complex64),))
