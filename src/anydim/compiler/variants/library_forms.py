"""Program forms in which an external library computes matrix products."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from anydim.compiler.passes.program_form import Form
from anydim.compiler.variants.blas_libraries import open_library

if TYPE_CHECKING:
    from anydim.compiler.kernels.template import Template

LOG = logging.getLogger("anydim.variants")


def library_form(name: str) -> Form:
    """The form for a library with cblas functions, by its name.

    Opens the library; raises OptionError if it is missing.
    """
    found = open_library(name)
    if not found.use_one_thread():
        LOG.info('library("%s"): it has no function to set its threads', name)
    template: Template = import_module(
        "anydim.compiler.kernels.matmul.blas.blas_template"
    ).blas_template(found.addresses)
    return Form(templates=(template,))
