"""Compares results of a backend with those of torch: types, shapes, elements."""

from __future__ import annotations

from typing import Any

import torch

TOLERANCES = {  # (relative, absolute); a sum of many terms may round otherwise
    torch.float64: (1e-7, 1e-7), torch.float32: (2e-4, 2e-5), torch.bfloat16: (4e-2, 2e-2),
    torch.float16: (1e-2, 2e-3),
}  # fmt: skip


def difference(wanted: list[Any], found: list[Any], is_random: bool) -> str:
    """What differs; empty where the results agree."""
    if len(wanted) != len(found):
        return f"{len(found)} results, torch has {len(wanted)}"
    for number, (theirs, ours) in enumerate(zip(wanted, found)):
        text = _difference(theirs, ours, is_random)
        if text:
            return f"result {number}: {text}"
    return ""


def _difference(theirs: Any, ours: Any, is_random: bool) -> str:
    if not torch.is_tensor(theirs):
        theirs = torch.tensor(theirs)
        ours = torch.as_tensor(ours).to(theirs.dtype)
    ours = torch.as_tensor(ours)
    if ours.dtype != theirs.dtype:
        return f"{ours.dtype}, torch has {theirs.dtype}"
    if ours.shape != theirs.shape:
        return f"shape {tuple(ours.shape)}, torch has {tuple(theirs.shape)}"
    if is_random or not theirs.numel():
        return ""
    dtype = theirs.dtype.to_real() if theirs.is_complex() else theirs.dtype
    relative, absolute = TOLERANCES.get(dtype, (0.0, 0.0))
    if theirs.is_floating_point() or theirs.is_complex():
        scale = theirs[theirs.isfinite()].abs().max().item() if theirs.isfinite().any() else 0
        absolute = max(absolute, absolute * scale)
    if torch.allclose(ours, theirs, relative, absolute, equal_nan=True):
        return ""
    wrong = ~torch.isclose(ours, theirs, relative, absolute, equal_nan=True)
    place = tuple(int(index) for index in wrong.nonzero()[0])
    return (
        f"{int(wrong.sum())} of {theirs.numel()} elements differ, at {place}: "
        f"{ours[place].item()}, torch has {theirs[place].item()}"
    )
