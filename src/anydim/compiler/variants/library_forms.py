"""Program forms in which an external library computes matrix products."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from anydim.base.frozen import FrozenMapping
from anydim.compiler.passes.program_form import Form
from anydim.compiler.targets.cuda.cuda_target import NAME as CUDA
from anydim.compiler.variants.blas_libraries import open_library

if TYPE_CHECKING:
    from anydim.compiler.kernels.template import Template

LOG = logging.getLogger("anydim.variants")


def library_form(name: str) -> Form:
    """The form for the library of a name: a row of `LIBRARIES`, or a library with cblas functions.

    Opens the library; raises OptionError if it is missing.
    """
    if name in LIBRARIES:
        return LIBRARIES[name]()
    found = open_library(name)
    if not found.use_one_thread():
        LOG.info('library("%s"): it has no function to set its threads', name)
    template: Template = import_module(
        "anydim.compiler.kernels.matmul.blas.blas_template"
    ).blas_template(found.addresses)
    return Form(templates=(template,))


def _cublas() -> Form:
    import_module("anydim.runtime.devices.cublas").cublas()
    template: Template = import_module("anydim.compiler.kernels.gpu.library_matmul").TEMPLATE
    return Form(on_devices=FrozenMapping({CUDA: (template,)}))


LIBRARIES: Mapping[str, Callable[[], Form]] = {"cublas": _cublas}  # of devices
