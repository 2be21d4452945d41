"""The strategy `library`: matrix products by an external library."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.user_values import path_of
from anydim.compiler.variants.strategies.strategy import Strategy

if TYPE_CHECKING:
    from anydim.compiler.passes.program_form import Form


@dataclass(frozen=True)
class Library(Strategy):
    """A BLAS computes plain matrix products; for `compile` only.

    Attributes:
        name: `"openblas"`, or the path of a shared library with the cblas interface. The library
            is opened when a model is compiled.
    """

    formed: ClassVar[bool] = True

    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", path_of("a library", self.name))
        if not self.name or '"' in self.name or "\\" in self.name:
            hint = 'give "openblas", or a path'
            raise OptionError(f"library '{self.name}' is not a valid name", hint)

    def form(self) -> Form:
        form: Form = import_module("anydim.compiler.variants.library_forms").library_form(self.name)
        return form

    def __str__(self) -> str:
        return f'library("{self.name}")'
