"""Versions: named implementations of one group, each selected by a condition on sizes.

A template lists its versions in order; a call runs the first one whose condition holds.

Versions with the same operands and parallel range are branches of one main function
(`versioned_steps`). Others are separate launches (`versioned_launch`), merged into one kernel with
the functions and operands of all: an operand that two versions pack differently is stored twice,
and the parallel range is that of the selected version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar

from anydim.base.dtypes import uint8
from anydim.base.errors import InternalError, OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.context import SizeParameters
from anydim.compiler.kernels.ir import constant, variable
from anydim.compiler.kernels.launch import Argument, Launch
from anydim.compiler.kernels.naming import NUMBERED, named_kernel
from anydim.compiler.kernels.schedule import ANY, print_schedule
from anydim.sizes import ALWAYS, NEVER, Box, Condition, Size, maximum, minimum, settle

CHOICE = "choice"
Made = TypeVar("Made")
Steps = tuple[ir.Step, ...]
Listed = tuple[tuple[str, Condition], ...]


@dataclass(frozen=True)
class Version(Generic[Made]):
    """One implementation; `lower(schedule)` returns its launch or steps.

    `when` selects it unless an earlier version was selected; the last version has ALWAYS. `right`:
    where it is correct, and may therefore be forced; `when` implies it. `inside`: names of the
    versions within its launch, other than its own.
    """

    name: str
    when: Condition
    schedule: Any
    lower: Callable[[Any], Made]
    right: Condition = ALWAYS
    inside: tuple[str, ...] = ()

    @property
    def made(self) -> Made:
        return self.lower(self.schedule)


def versioned_steps(versions: Sequence[Version[Steps]], sizes: SizeParameters) -> Steps:
    """Branches to the first version whose condition holds; the last one serves all sizes.

    `versions` come from `usable_versions`.
    """
    steps = versions[-1].made
    for version in reversed(versions[:-1]):
        steps = (ir.If(sizes.condition_flag(version.when), version.made, steps),)
    return steps


def listed_versions(versions: Sequence[Version[Any]], before: Listed = ()) -> Listed:
    """Names and conditions for `Launch.versions`, after those in `before`."""
    return (*before, *((version.name, version.when) for version in versions))


def versioned_launch(versions: Sequence[Version[Launch]], schedule: Any) -> Launch:
    """One launch that selects the first version whose condition holds at a call's sizes.

    A version that the schedule forces is selected wherever it is correct; OptionError if unknown.
    """
    kept = usable_versions(versions, schedule.version)
    launches = [version.made for version in kept]
    made = launches[-1]
    for version, launch in zip(kept[-2::-1], launches[-2::-1]):
        made = multiversion_launch(version.when, launch, made)
    reasons = [f"{v.name}: {launch.reason}" for v, launch in zip(kept[:-1], launches)]
    return replace(
        made,
        schedule=print_schedule(schedule),
        reason="; ".join((launches[-1].reason, *reasons)),
        versions=tuple(_list_with_inner(kept, launches)),
    )


def _list_with_inner(
    versions: Sequence[Version[Launch]], launches: Sequence[Launch]
) -> Iterator[tuple[str, Condition]]:
    """Names and conditions of versions, including those inside of their launches."""
    for version, launch in zip(versions, launches):
        for name, when in launch.versions if version.inside else ((version.name, ALWAYS),):
            yield name, version.when & when


def usable_versions(versions: Sequence[Version[Made]], forced: str) -> list[Version[Made]]:
    """The versions that some size selects; a `forced` one is selected wherever it is correct.

    Raises OptionError for an unknown name; ANY forces none.
    """
    return _drop_unused(versions if forced == ANY else _force_first(versions, forced))


def _force_first(versions: Sequence[Version[Made]], name: str) -> list[Version[Made]]:
    """The versions with one of them first, selected wherever it is correct."""
    found = [each for each in versions if name in (each.name, *each.inside)]
    if not found:
        raise no_version(name, [n for each in versions for n in (*each.inside, each.name)])
    rest = (each for each in versions if each != found[0])
    return [replace(found[0], when=found[0].right), *rest]


def taken_where(
    version: str, name: str, when: Condition, right: Condition | None = None
) -> Condition:
    """The condition that selects version `name`: `when`, or `right` if `version` forces it.

    NEVER if another version is forced. The last version has no condition.
    """
    if version == ANY:
        return when
    return NEVER if version != name else when if right is None else right


def checked_version(version: str, listed: Listed) -> Listed:
    """The versions that some size selects; OptionError if a forced `version` is unknown."""
    names = [name for name, _ in listed]
    if version not in (ANY, *names):
        raise no_version(version, names)
    return tuple((name, when) for name, when in listed if when != NEVER)


class NoVersionError(OptionError):
    """A forced version that the kernel does not have."""


def no_version(name: str, known: Sequence[str]) -> NoVersionError:
    """The error for a version that a kernel does not have."""
    problem = f"this kernel has no version '{name}'"
    return NoVersionError(problem, f"its versions are {quote_list(dict.fromkeys(known))}")


def forced_launch(make: Callable[[str], Launch], version: str, box: Box, strict: bool) -> Launch:
    """The launch that `make` returns for a forced version.

    If no size in the box selects that version: OptionError, or without `strict` the launch with its
    usual versions.
    """
    if version == ANY:
        return make(ANY)
    with suppress(NoVersionError):
        launch = make(version)
        if any(name == version and settle(w, box) != NEVER for name, w in launch.versions):
            return launch
    usual = make(ANY)
    if strict:
        raise no_version(version, [name for name, _ in usual.versions])
    return usual


def _drop_unused(versions: Sequence[Version[Made]]) -> list[Version[Made]]:
    """The versions up to the first that is always selected, without those never selected."""
    kept: list[Version[Made]] = []
    for version in versions:
        if version.when != NEVER:
            kept.append(version)
        if version.when == ALWAYS:
            return kept
    raise InternalError(f"no version of {[each.name for each in versions]} serves all sizes")


def multiversion_launch(choice: Condition, one: Launch, other: Launch) -> Launch:
    """One launch: `one` where `choice` holds, `other` elsewhere; other fields are those of `one`.

    Functions of the two kernels need different names.
    """
    names = {a: f"o{n}" for n, a in enumerate(dict.fromkeys((*one.arguments, *other.arguments)))}
    numbers: dict[Size, str] = {}
    own, others = _rename_sizes("one", one, numbers), _rename_sizes("other", other, numbers)
    sizes = own | others
    operands = [_operand(argument, name, one, other) for argument, name in names.items()]
    shared = {
        names[argument]
        for launch in (one, other)
        for argument, pointer in zip(launch.arguments, launch.kernel.main.parameters)
        if isinstance(pointer, ir.Pointer) and pointer.alias
    }
    main = ir.Function(
        "either",
        (
            *(ir.Pointer(o.name, o.dtype, alias=o.name in shared) for o in operands),
            *(ir.Scalar(name) for name in (*sizes, CHOICE, "start", "stop")),
            ir.Pointer("scratch", uint8),
        ),
        (
            ir.If(
                variable(CHOICE).differs(0),
                (_call(one, names, own),),
                (_call(other, names, others),),
            ),
        ),
    )
    kernels = (one.kernel, other.kernel)
    kernel = named_kernel(
        one.kernel.name.rpartition("_")[0],
        operands,
        (*sizes, CHOICE),
        (*(function for kernel in kernels for function in kernel.functions), main),
        {library.name: library for kernel in kernels for library in kernel.libraries}.values(),
    )
    return replace(
        one,
        kernel=kernel,
        arguments=tuple(names),
        sizes=(*sizes.values(), choice.flag),
        parallel=choice.where(one.parallel, other.parallel),
        grain=minimum(one.grain, other.grain),
        scratch=maximum(one.scratch, other.scratch),
        order=None,
        in_place=tuple(pair for pair in one.in_place if pair in other.in_place),
    )


def _rename_sizes(variant: str, launch: Launch, numbers: dict[Size, str]) -> dict[str, Size]:
    """Return the sizes of a launch under their new names; a role is prefixed with its variant.

    Numbered sizes have no role: equal ones are shared by both variants.
    """
    return {
        numbers.setdefault(size, f"p{len(numbers)}")
        if NUMBERED.fullmatch(name)
        else f"{variant}_{name}": size
        for name, size in zip(launch.kernel.sizes, launch.sizes)
    }


def _operand(argument: Argument, name: str, *launches: Launch) -> ir.Operand:
    """Return the operand of an argument, under its new name."""
    found = [
        operand
        for launch in launches
        for own, operand in zip(launch.arguments, launch.kernel.operands)
        if own == argument
    ]
    return ir.Operand(name, found[0].dtype, any(operand.written for operand in found))


def _call(launch: Launch, names: Mapping[Argument, str], sizes: Iterable[str]) -> ir.Call:
    """Return the call of main to one of the two variants."""
    return ir.Call(
        launch.kernel.main.name,
        (
            *(ir.Address(names[argument], constant(0)) for argument in launch.arguments),
            *map(variable, sizes),
            variable("start"),
            variable("stop"),
            ir.Address("scratch", constant(0)),
        ),
    )
