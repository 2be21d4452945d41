"""The command `tune`: faster code for the sizes that a model really gets."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.base.text import count_of
from anydim.cli.opening import compile_model
from anydim.cli.options import Request, model_command
from anydim.cli.ranges import FiniteRange
from anydim.cli.report.console import Console
from anydim.cli.report.curve import curve

if TYPE_CHECKING:
    from anydim.compiler.variants.ledger import Ledger
    from anydim.compiler.variants.workers import Team


@model_command
@click.option(
    "--profile", "--sizes", "recorded", metavar="FILE", help="The file that model.record wrote."
)
@click.option(
    "--minutes", type=FiniteRange(0), default=5.0, show_default=True,
    help="Time limit of the search.",
)  # fmt: skip
@click.option(
    "--import",
    "taken",
    multiple=True,
    metavar="FILE",
    help="Import the results of another machine of this kind, before a search or instead of one.",
)
@click.option(
    "--ray",
    "cluster",
    is_flag=False,
    flag_value="",
    metavar="ADDRESS",
    help="Search on a Ray cluster, on its machines of this kind; without ADDRESS the one this "
    "machine is part of, or this machine alone.",
)
@click.option("--export", "written", metavar="FILE", help="Export all results for other machines.")
def tune(
    request: Request, recorded: str | None, minutes: float, taken: tuple[str, ...],
    cluster: str | None, written: str | None,
) -> None:  # fmt: skip
    """Search schedules for the sizes that MODEL was called with, the costliest launches first.

    Later compilations on this kind of machine, with the same number of threads, use the schedules
    that are better over all these sizes, at every size. The bits of results do not change. Then the
    search looks for code for single sizes, which --strategy adaptive and `model.prepare_recorded`
    use. The results are kept beside the cache. The search uses every core.

    \b
    Examples:
      anydim tune encoder.onnx --profile sizes.jsonl --minutes 5
      anydim tune encoder.onnx --profile sizes.jsonl --ray
      anydim tune encoder.onnx --profile sizes.jsonl --export tuned.sqlite
      anydim tune encoder.onnx --import tuned.sqlite
    """
    console = Console(request.quiet)
    if recorded is None and not (taken or written):
        raise OptionError(
            "tune needs recorded sizes", "give --profile sizes.jsonl, written by model.record"
        )
    if recorded is not None and not Path(recorded).is_file():
        raise OptionError(f"{recorded} cannot be read", "model.record(path) writes such a file")
    for path in taken:
        console.note(f"{path}: {count_of(_ledger(request).merge(path), 'record')}")
    if recorded is not None:
        _search(console, request, recorded, minutes, _team(console, request, cluster))
    if written is not None:
        count = _ledger(request).export(written)
        console.note(f"wrote {written}, {count_of(count, 'record')}")


def _team(console: Console, request: Request, cluster: str | None) -> Team | None:
    """Who searches in the place of processes of this machine."""
    if cluster is None:
        return None
    with console.task("asking the machines of the cluster"):
        made = import_module("anydim.compiler.variants.ray_search").RayTeam(
            cluster or None, request.code
        )
    others = f"; {count_of(made.others, 'machine')} of other kinds left out" if made.others else ""
    console.note(f"{made.count} searches at once on {count_of(made.machines, 'machine')}{others}")
    found: Team = made
    return found


def _search(
    console: Console, request: Request, recorded: str, minutes: float, team: Team | None
) -> None:
    usual = str(import_module("anydim.compiler.variants.compiled_variants").TUNED)
    given = request if request.strategy else replace(request, strategy=usual)
    model = compile_model(console, given)
    with console.task(f"tuning {model.name}") as advance:
        found = model.tune(
            recorded, 60 * minutes,
            lambda done, launches, share: advance(done, launches, f"{100 * share:.1f} % saved"),
            team,
        )  # fmt: skip
    console.prose(str(found))
    shown = curve(found.curve)
    if shown:
        console.result(f"\nshare of recorded time saved, by seconds of the search\n{shown}\n")
    for each in (*found.whole, *model.variants()):
        console.prose(f"  {each}")
    if found.whole:
        count = count_of(len(found.whole), "kernel")
        console.note(f"models compiled from now on use another schedule for {count}")


def _ledger(request: Request) -> Ledger:
    """Where this process keeps what is found."""
    made = import_module("anydim.compiler.variants.ledger")
    target = import_module("anydim.compiler.targets.targets").target
    found: Ledger = made.ledger(made.name_of(target(request.code or settings.target)))
    return found
