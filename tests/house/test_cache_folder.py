"""Promise: one module touches the folder of the cache, and has what fails there warned of."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "anydim"
ALLOWED = {"base/settings.py", "base/cache_folder.py"}


def test_nobody_else_reads_the_setting() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"settings\.cache_dir|get\(.cache_dir.\)", path.read_text("utf-8"))
    }
    assert found == ALLOWED
