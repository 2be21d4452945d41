"""What a run says: means, the worst ratios, jumps between neighbouring sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import geometric_mean

from rich.console import Console
from rich.table import Table

from bench.cliffs.running import Found

AIM = 1.1  # of the peer's time
SEEN = 10.0  # microseconds: below, what a call costs hides what an element costs
NOTHING = 0.3  # microseconds of work: what takes longer than that is what a call costs
LEAST = 0.1  # of the time of a call: what a call costs is not known better
JUMP = 1.5  # what an element may cost for one at the neighbouring size
NEAR = 8.0  # neighbours have at most so many times the work of each other
NOISE = 1.1  # the peer's jump is known to a tenth


@dataclass(frozen=True)
class Jump:
    """Two neighbouring sizes of a family, and the ratio of what their elements cost.

    `sure` is the ratio whichever is taken off for a call: what the family's own takes, or the
    shortest of all. `peer` is what the peer's elements cost at the slow size for one at the fast.
    """

    slow: Found
    fast: Found
    ratio: float
    sure: float = 0.0
    peer: float = 0.0

    @property
    def own(self) -> bool:
        """Whether neither the cost of a call nor the sizes themselves explain it, as the peer's."""
        return self.sure > max(JUMP, NOISE * self.peer)


def mean(found: Sequence[Found]) -> float:
    """Geometric mean of the ratios; nan of nothing."""
    return geometric_mean(one.ratio for one in found) if found else float("nan")


def share(found: Sequence[Found], aim: float = AIM) -> float:
    """The share of cases with at most this ratio."""
    return sum(one.ratio <= aim for one in found) / max(1, len(found))


def jumps(found: Sequence[Found]) -> list[Jump]:
    """Neighbours by work in a family, the largest ratio first.

    What an element costs is without what a call of almost nothing takes: of the same family, where
    it has one (data that finds sizes, or many inputs, cost more), else of any.
    """
    least = tuple(min((times(one)[who] for one in found), default=0.0) for who in (OURS, PEERS))

    def pairs() -> Iterator[Jump]:
        for _, group in groupby(found, lambda one: (one.family, one.threads)):
            family = list(group)
            small = [one for one in family if one.limit < NOTHING]
            call = tuple(
                min((times(one)[who] for one in small), default=least[who]) for who in (OURS, PEERS)
            )
            ordered = sorted(
                (one for one in family if one.ours > SEEN and one.limit > 0),
                key=lambda one: one.limit,
            )
            for one, other in pairwise(ordered):
                if other.limit < NEAR * one.limit:
                    yield _jump(one, other, call, least)

    return sorted(pairs(), key=lambda jump: -jump.ratio)


OURS, PEERS = 0, 1


def times(one: Found) -> tuple[float, float]:
    """Microseconds of a call: ours and the peer's."""
    return one.ours, one.theirs


def _jump(one: Found, other: Found, call: Sequence[float], least: Sequence[float]) -> Jump:
    """Of two neighbours, where an empty call takes `call` here, `least` in any family."""

    def cost(case: Found, off: Sequence[float], who: int = OURS) -> float:
        time = times(case)[who]
        return max(time - off[who], LEAST * time) / case.limit

    fast, slow = sorted((one, other), key=lambda case: cost(case, call))
    ratios = [cost(slow, off) / cost(fast, off) for off in (call, least)]
    peer = max(cost(slow, off, PEERS) / cost(fast, off, PEERS) for off in (call, least))
    return Jump(slow, fast, ratios[0], min(ratios), peer)


def even(found: Sequence[Jump]) -> float:
    """The share of neighbours that cost about the same for each element."""
    return sum(jump.ratio <= JUMP for jump in found) / max(1, len(found))


def explained(found: Sequence[Jump]) -> float:
    """The share of neighbours without a jump of ours alone."""
    return sum(not jump.own for jump in found) / max(1, len(found))


def show(console: Console, found: Sequence[Found], count: int) -> None:
    """Tables of areas, of the worst and of the largest jumps."""
    areas = Table(title="time for one of the peer's")
    columns = ("area", "threads", "cases", "mean", f"<= {AIM}", "worst")
    for column in (*columns, "neighbours", f"jumps <= {JUMP}", "or the peer's", "worst jump"):
        areas.add_column(column, justify="left" if column == "area" else "right")
    for threads in sorted({one.threads for one in found}):
        part = [one for one in found if one.threads == threads]
        for area in (*dict.fromkeys(one.area for one in part), "all"):
            here = [one for one in part if area in (one.area, "all")]
            areas.add_row(
                area, str(threads), str(len(here)), f"{mean(here):.2f}", f"{share(here):.0%}",
                f"{max(one.ratio for one in here):.1f}", *_jumping(jumps(here)),
            )  # fmt: skip
    console.print(areas)
    _show_worst(console, sorted(found, key=lambda one: -one.ratio)[:count])
    table = Table(title="jumps of ours alone: cost of an element for one at the neighbouring size")
    for column in ("family", "size", "beside", "jump", "peer's", "ratio"):
        table.add_column(
            column, justify="left" if column in ("family", "size", "beside") else "right"
        )
    for jump in [jump for jump in jumps(found) if jump.own][: count // 2]:
        table.add_row(
            jump.slow.family, jump.slow.label, jump.fast.label, f"{jump.sure:.1f}",
            f"{jump.peer:.1f}", f"{jump.slow.ratio:.2f}",
        )  # fmt: skip
    console.print(table)


def _jumping(found: Sequence[Jump]) -> tuple[str, str, str, str]:
    """How many pairs of neighbours there are, the share of even and explained ones, the worst."""
    worst = f"{found[0].ratio:.1f}" if found else ""
    return str(len(found)), f"{even(found):.0%}", f"{explained(found):.0%}", worst


def _show_worst(console: Console, found: Sequence[Found]) -> None:
    table = Table(title="the worst")
    for column in ("family", "size", "threads", "peer", "us", "ratio", "of the limit"):
        left = column in ("family", "size", "peer")
        table.add_column(column, justify="left" if left else "right")
    for one in found:
        table.add_row(
            one.family, one.label, str(one.threads), one.peer, f"{one.ours:.1f}",
            f"{one.ratio:.2f}", f"{one.share:.0%}",
        )  # fmt: skip
    console.print(table)


def show_changes(console: Console, before: Sequence[Found], found: Sequence[Found]) -> None:
    """Families whose mean ratio went up or down by a tenth."""
    table = Table(title="families that changed")
    for column in ("family", "before", "now", "change"):
        table.add_column(column, justify="left" if column == "family" else "right")
    earlier = {(one.family, one.threads, one.label): one for one in before}
    pairs = [(earlier[key], one) for one in found
             if (key := (one.family, one.threads, one.label)) in earlier]  # fmt: skip
    rows = []
    for name, group in groupby(pairs, lambda pair: f"{pair[1].family}, {pair[1].threads}"):
        here = list(group)
        was, now = mean([a for a, _ in here]), mean([b for _, b in here])
        if not 0.9 < now / was < 1.1:
            rows.append((now / was, name, was, now))
    for change, name, was, now in sorted(rows):
        table.add_row(name, f"{was:.2f}", f"{now:.2f}", f"{change:.2f}")
    console.print(table)
    was, now = mean([a for a, _ in pairs]), mean([b for _, b in pairs])
    console.print(f"{len(pairs)} cases of both: mean {was:.3f} before, {now:.3f} now")
