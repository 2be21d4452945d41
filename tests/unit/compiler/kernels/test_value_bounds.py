"""Promise: what is known of a row's numbers spares operations, and changes no bit, NaN included."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.kernels.codegen.value_bounds import peaks, settled_peaks, shares, totals
from tests.unit.compiler.kernels.row_cases import Case

POWERS = """ top(r) max=! x(r,c)
  e(r,c) = exp(x(r,c) - top(r))
  total(r) +=! e(r,c)
"""
SHARES = "  y(r,c) = e(r,c) / total(r) }"
TEXT = (
    f"def shown(T(R,C) x) -> (e, total, y) {{ {POWERS}{SHARES}\n"
    f"def hidden(T(R,C) x) -> (y) {{ {POWERS}{SHARES}\n"
    f"def top_too(T(R,C) x) -> (top, y) {{ {POWERS}{SHARES}\n"
    f"def logs(T(R,C) x) -> (y) {{ {POWERS}  y(r,c) = x(r,c) - top(r) - log(total(r)) }}\n"
)
ROWS = {
    "usual": lambda x: x,
    "far below": lambda x: x * 40,
    "a part too small": lambda x: np.where(np.arange(x.shape[1]) % 5 == 3, -80, x),
    "masked": lambda x: np.where(np.arange(x.shape[1]) % 5 == 3, -np.inf, x),
    "nothing but -inf": lambda x: np.full_like(x, -np.inf),
    "one infinity": lambda x: np.where(np.arange(x.shape[1]) == x.shape[1] // 2, np.inf, x),
    "one NaN": lambda x: np.where(np.arange(x.shape[1]) == x.shape[1] // 2, np.nan, x),
    "NaN first": lambda x: np.where(np.arange(x.shape[1]) == 0, np.nan, x),
    "nothing but NaN": lambda x: np.full_like(x, np.nan),
}


def facts(text: str) -> tuple[set[str], set[str], frozenset[str], frozenset[str]]:
    group = Case("f", text, ("R C",), lambda x: x).group()
    return set(totals(group)), set(peaks(group)), shares(group), settled_peaks(group)


def test_what_is_known() -> None:
    hidden, top = frozenset(("total",)), frozenset(("top",))
    begin = "def f(T(R,C) x) -> "
    assert facts(f"{begin}(y) {{{POWERS}{SHARES}") == ({"total"}, {"top"}, hidden, top)
    assert facts(f"{begin}(e,y) {{{POWERS}{SHARES}")[2:] == (hidden, frozenset())
    assert facts(f"{begin}(top,y) {{{POWERS}{SHARES}")[2:] == (hidden, frozenset())
    assert facts(f"{begin}(y) {{{POWERS} y(r,c) = x(r,c) / total(r) }}")[2:] == (frozenset(), top)
    assert facts(f"{begin}(y) {{{POWERS} y(r,c) = x(r,c) - log(total(r)) }}")[3] == top
    loses = f"{begin}(y) {{{POWERS} y(r,c) = total(r) > 1 ? top(r) : e(r,c) }}"
    assert facts(loses)[2:] == (frozenset(), frozenset())
    scaled = POWERS.replace("x(r,c)", "(3 * x(r,c))")
    assert facts(f"{begin}(y) {{{scaled}{SHARES}") == ({"total"}, set(), frozenset(), frozenset())


@pytest.mark.sampled(most=11)
@pytest.mark.parametrize("dtype", (np.float16, np.float32, np.float64))
@pytest.mark.parametrize("columns", (1, 7, 8, 16, 17, 33, 64, 65, 130))
def test_shares_are_quotients(dtype: type, columns: int) -> None:
    """Of the powers and the total of the same kernel; rows that are divided, too."""
    lib, chance = ad.define(TEXT), np.random.default_rng(columns)
    near = 32 * float(np.finfo(dtype).eps)
    for name, make in ROWS.items():
        usual = chance.standard_normal((9, columns))
        x = np.array([*usual[:3], *make(usual)[3:6], *usual[6:]], dtype)  # between usual ones
        shown, only, with_top = lib.shown(x), lib.hidden(x), lib.top_too(x)
        with np.errstate(all="ignore"):
            wanted = shown.e / shown.total[:, None]
            most = x.max(1)
            wide = (x - most[:, None]).astype(float)
            logs = wide - np.log(np.exp(wide).sum(1))[:, None]
        for found in (shown.y, only, with_top.y):
            if dtype is np.float16:  # the shown ones are rounded, the ones that are divided not
                np.testing.assert_allclose(found, wanted, 1.5 * near / 32, 1e-7, err_msg=name)
            else:
                np.testing.assert_array_equal(found, wanted, name)
        np.testing.assert_array_equal(with_top.top, most, name)
        np.testing.assert_allclose(lib.logs(x), logs, rtol=near, atol=near, err_msg=name)
        lost = ~np.isfinite(most) | np.isnan(x).any(1)
        assert (np.isnan(only).all(1) == lost).all(), name
        assert (np.isnan(shown.e).any(1) == lost).all(), name
        assert np.isnan(shown.e[np.isnan(x).any(1)]).all(), name
