"""The templates of 3 x 3 convolutions by Winograd's algorithm: a quarter of the products.

16 results of a 3 x 3 window take 36 products instead of 144, and additions before and after; the
weights are transformed at load time and take four times the memory. The terms of the sums are
larger than those of a plain convolution: errors are about ten times as large, some 1e-6 of the
largest result. `settings.winograd` turns it off.

There is one template for channels-first tensors, and one for channels-last tensors. A plain
convolution of small images is faster: where sizes are dynamic, a kernel has both variants, and the
weights are packed for both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from anydim.base import settings
from anydim.base.dtypes import float32
from anydim.compiler.kernels.knobs import VERSIONS, between
from anydim.compiler.kernels.launch import Launch, known_number, known_parts
from anydim.compiler.kernels.matmul.register_tile import TILE_KNOBS, tile_of
from anydim.compiler.kernels.matmul.schedules import Winograd, WinogradAcross
from anydim.compiler.kernels.matmul.winograd.channels_last import AcrossWriter
from anydim.compiler.kernels.matmul.winograd.winograd_form import (
    ChannelsFirstForm,
    ChannelsLastForm,
    channels_first_form_of,
    channels_last_form_of,
)
from anydim.compiler.kernels.matmul.winograd.winograd_loops import WinogradWriter
from anydim.compiler.kernels.matmul.winograd.winograd_transforms import WEIGHTS
from anydim.compiler.kernels.template import Task, Template, form_template
from anydim.compiler.kernels.versions import Version, versioned_launch
from anydim.runtime.panels import ProductPanels
from anydim.sizes import ALWAYS

_REASON = "a 3 x 3 convolution in 36 products for 16 results (Winograd)"


def _propose_planes(found: ChannelsFirstForm, task: Task) -> Winograd | None:
    if not settings.winograd:
        return None
    tile = tile_of(task.machine, float32)
    return Winograd(*tile.options, 64 // tile.rows)


def _lower_planes(
    plain: Template, found: ChannelsFirstForm, schedule: Winograd, task: Task
) -> Launch:
    form = found.form
    batch, k, rows = (known_parts(part) for part in form.w_parts)
    panels = ProductPanels(
        schedule.tile.rows, batch, k[:1], rows, known_number(form.w_start), k[1:], WEIGHTS
    )
    writer = WinogradWriter(task.group, found, schedule)

    def launch_transformed(schedule: Any) -> Launch:
        return writer.launch(schedule, {"w": panels}, form.work, _REASON)

    return _launch_versions(launch_transformed, schedule, found, plain, task)


def _propose_images(found: ChannelsLastForm, task: Task) -> WinogradAcross | None:
    if not settings.winograd:
        return None
    tile = tile_of(task.machine, float32)
    block = found.block // tile.rows * tile.rows
    return WinogradAcross(*tile.options, block)


def _lower_images(
    plain: Template, found: ChannelsLastForm, schedule: WinogradAcross, task: Task
) -> Launch:
    form = found.form
    batch, k, n = (known_parts(part) for part in form.b_parts)
    panels = ProductPanels(
        schedule.lanes, batch, k[2:], n, known_number(form.b_start), k[:2], WEIGHTS
    )
    writer = AcrossWriter(task.group, found, schedule, task.machine.threads)

    def launch_transformed(schedule: Any) -> Launch:
        return writer.launch(schedule, {"w": panels}, form.work, f"{_REASON}, along channels")

    return _launch_versions(launch_transformed, schedule, found, plain, task)


def _launch_versions(
    transformed: Callable[[Any], Launch], schedule: Winograd | WinogradAcross,
    found: ChannelsFirstForm | ChannelsLastForm, plain: Template, task: Task,
) -> Launch:  # fmt: skip
    """Return the launch: transformed where that pays, elsewhere a plain convolution."""
    rest = task.box, task.machine, task.constants
    proposed = plain.match(task.group, *rest)
    if proposed is None:
        return transformed(schedule)
    versions = (
        Version("transformed", found.pays, schedule, transformed),
        Version("plain", ALWAYS, proposed, lambda own: plain.lower(task.group, own, *rest)),
    )
    return versioned_launch(versions, schedule)


def planes_template(plain: Template) -> Template:
    """Return the template of channels-first tensors; `plain` is that of plain convolutions."""
    lower = partial(_lower_planes, plain)
    return form_template(
        "winograd", Winograd, channels_first_form_of, _propose_planes, lower, keeps=True,
        transforms=True, least_lanes=2,
        knobs={
            **TILE_KNOBS,
            "rows": TILE_KNOBS["rows"].with_tries(4, 6, 8, 10, 12),
            "block_tiles": between(1, 1 << 10).with_tries(
                8, 16, 32, 64, everywhere=(2, 3, 4, 6, 8, 12, 16, 32)
            ),
            "version": VERSIONS,
        },
    )  # fmt: skip


def images_template(plain: Template) -> Template:
    """Return the template of channels-last tensors; `plain` is that of plain convolutions."""
    lower = partial(_lower_images, plain)
    return form_template(
        "winograd_across", WinogradAcross, channels_last_form_of, _propose_images, lower,
        keeps=True, transforms=True,
        knobs={**TILE_KNOBS, "block": between(1, 1 << 10), "version": VERSIONS},
    )  # fmt: skip
