"""Program forms of strategies that change compilation instead of adding variants."""

from __future__ import annotations

import logging
from importlib import import_module

from anydim.base.frozen import FrozenMapping, freeze
from anydim.passes.program_form import PLAIN_FORM, Form
from anydim.targets.cuda.cuda_target import NAME as CUDA
from anydim.variants.blas_libraries import opened
from anydim.variants.strategies import Library, Pad, Strategy

CUBLAS = "cublas"
LOG = logging.getLogger("anydim.variants")


def form_of(strategy: Strategy) -> Form:
    """The form that a strategy requires; opens a library.

    Raises OptionError for a missing library.
    """
    if isinstance(strategy, Library) and strategy.name == CUBLAS:
        import_module("anydim.devices.cublas").cublas()
        library = import_module("anydim.kernels.gpu.library_matmul")
        return Form(on_devices=FrozenMapping({CUDA: (library.TEMPLATE,)}))
    if isinstance(strategy, Library):
        found = opened(strategy.name)
        if not found.use_one_thread():
            LOG.info("%s: it has no function to set its threads", strategy)
        blas = import_module("anydim.kernels.matmul.blas.blas_template")
        return Form(templates=(blas.blas_template(found.addresses),))
    return Form(pads=freeze(strategy.pads)) if isinstance(strategy, Pad) else PLAIN_FORM
