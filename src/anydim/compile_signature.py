"""The signature and documentation of a function that takes the fields of a record."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, get_annotations
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, overload

from anydim.base.records import fields_of

if TYPE_CHECKING:
    from anydim.compile_options import Dims, Options
    from anydim.model import Model
    from anydim.passes.options import KernelOptions

Fields = ParamSpec("Fields")


class Compile(Protocol[Fields]):
    """`anydim.compile` for type checkers: with the fields of `Options`, or with a record."""

    @overload
    def __call__(self, source: Any, *args: Fields.args, **kwargs: Fields.kwargs) -> Model: ...

    @overload
    def __call__(
        self, source: Any, dims: Dims | None = None, *, options: Options | KernelOptions | None,
        **more: Any,
    ) -> Model: ...  # fmt: skip


def takes(record: Callable[Fields, Options]) -> Callable[[Callable[..., Model]], Compile[Fields]]:
    """A decorator: the function takes the fields of `record`, which documents them.

    The function has parameters `source`, `dims`, `options` and keywords. `help` and `inspect` show
    the fields, with the section "Attributes" of the record in the section "Args".
    """

    def decorate(function: Any) -> Any:
        own = record.__doc__ or ""
        fields = own.partition("    Attributes:\n")[2].rstrip()
        head, args, rest = (function.__doc__ or "").partition("        options: ")
        function.__doc__ = f"{head}{fields}\n{args}{rest}"
        function.__signature__ = _signature(record)
        return function

    return decorate


def _signature(record: Any) -> Signature:
    kinds = get_annotations(record)
    first, *others = (
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY if field.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
            default=field.default, annotation=kinds[field.name],
        )
        for field in fields_of(record)
    )  # fmt: skip
    source = Parameter("source", Parameter.POSITIONAL_OR_KEYWORD, annotation="Any")
    options = Parameter(
        "options", Parameter.KEYWORD_ONLY, default=None, annotation="Options | None"
    )
    return Signature([source, first, options, *others], return_annotation="Model")
