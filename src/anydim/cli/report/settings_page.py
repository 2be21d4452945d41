"""The page docs/settings.md, made from the table of knobs.

python -m anydim.cli.report.settings_page docs/settings.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from anydim.base.settings import KNOBS, Knob

_HEAD = """# Settings

Made by `python -m anydim.cli.report.settings_page docs/settings.md` from the table that the code
reads; a test compares.

A setting is an environment variable, or a value for a `with` block:

```python
import anydim as ad

with ad.settings.override(use_cache=False, compile_threads=1):
    lib = ad.define("def double(float(N) x) -> (y) { y(n) = 2 * x(n) }")
    lib.double([1, 2, 3])

print(ad.settings.cache_limit_mb)
```

A value that cannot be read is an `OptionError` that names the variable and says what was expected.
An override does not reach threads that are started inside it.

| setting | environment variable | default | what it does |
|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    return _HEAD + "".join(f"{_row(knob)}\n" for knob in KNOBS)


def _row(knob: Knob) -> str:
    return f"| `{knob.name}` | `{knob.variable}` | {knob.usual} | {knob.about} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
