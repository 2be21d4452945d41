"""What a wrong limit between two versions costs, and what `anydim calibrate` gains here.

    python -m bench.kernels.limits [NAME ...]

A row is a limit with one value: the largest time at a size, and the time over all sizes of its
probe, each relative to the default. Half and twice the default are shown also where settings and
calibration do not accept them.
"""

from __future__ import annotations

import argparse

from anydim.api.calibration import choose_limit, times_of
from anydim.api.calibration_probes import probes
from anydim.base.text import table
from anydim.compiler.kernels.limits import DEFAULTS, RANGES
from anydim.compiler.targets.targets import target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="limits; all without any")
    names, rows = parser.parse_args().names, []
    for probe in probes(target().machine):
        if names and probe.limit not in names:
            continue
        times = times_of(probe)
        usual, (low, high) = int(getattr(DEFAULTS, probe.limit)), RANGES[probe.limit]
        found = choose_limit(probe, times)
        for value in sorted({max(1, usual // 2), low, found.found, high, 2 * usual} - {usual}):
            total = probe.cost(times, value) / probe.cost(times, usual)
            accepted = "yes" if low <= value <= high else "no"
            note = "measured" if value == found.found else ""
            rows.append((probe.limit, str(usual), str(value), accepted,
                         f"{probe.worst(times, value):.2f}", f"{total:.2f}", note))  # fmt: skip
    print(table(("limit", "default", "value", "accepted", "worst", "all sizes", ""), rows))


if __name__ == "__main__":
    main()
