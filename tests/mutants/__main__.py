"""Which faults would the tests not notice? `make mutants`, or

    python -m tests.mutants sizes rules --count 400

changes one operator, number or argument of a function at a time and runs the room's unit tests for
each change (mutmut, the extra `mutation`). Prints mutants, killed ones and survivors by file, and
writes what the survivors change to `out/mutants/ROOM/survivors.diff`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import click

from tests.mutants.rooms import ROOMS
from tests.mutants.run import ROOT, STATUS, difference, outcomes, prepare, run, sample


@click.command(help=__doc__)
@click.argument("rooms", nargs=-1, type=click.Choice(list(ROOMS)))
@click.option("--count", default=0, help="Mutants of each room, drawn by the seed; 0: all.")
@click.option("--seed", default=0, show_default=True)
@click.option("--processes", default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "out" / "mutants")
def main(rooms: tuple[str, ...], count: int, seed: int, processes: int, out: Path) -> None:
    for room in rooms or ROOMS:
        folder = out / room
        prepare(ROOMS[room], folder)
        names = sample(folder, count, seed)
        click.echo(f"{room}: {len(names)} of {len(outcomes(folder))} mutants")
        run(folder, names, processes)
        found = {name: code for name, code in outcomes(folder).items() if code is not None}
        click.echo(table(found))
        alive = [name for name, code in found.items() if STATUS.get(code) in _ALIVE]
        text = "\n".join(difference(folder, name) for name in alive)
        (folder / "survivors.diff").write_text(text, "utf-8")


_ALIVE = ("survived", "untested")


def table(found: dict[str, int | None]) -> str:
    """Lines of a table in Markdown; a mutant that crashes or never ends is killed."""
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, code in found.items():
        status = STATUS.get(code, "killed") if code is not None else "killed"
        file = name.partition(".x")[0].removeprefix("anydim.").replace(".", "/") + ".py"
        for row in (file, "all"):
            rows[row][status] += 1
    lines = [
        "| file | mutants | killed | survived | untested | share killed |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for file in [*sorted(set(rows) - {"all"}), "all"]:
        counts = rows[file]
        share = counts["killed"] / counts.total()
        lines.append(f"| {file} | {counts.total()} | {counts['killed']} | {counts['survived']} "
                     f"| {counts['untested']} | {share:.0%} |")  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()
