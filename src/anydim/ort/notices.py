"""A session's log, `anydim.ort`, with onnxruntime's severities.

0 is verbose, 1 information, 2 warnings, 3 errors, 4 fatal. A session's `log_severity_level` is the
minimum severity that it logs; -1 defers to `set_default_logger_severity`.
"""

from __future__ import annotations

import logging
from functools import cache

from anydim.base.user_values import whole_within

LOG = logging.getLogger("anydim.ort")
LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
WARNING = 2


def set_default_logger_severity(severity: int) -> None:
    """Set the minimum severity for sessions without one of their own."""
    LOG.setLevel(LEVELS[whole_within("severity", severity, 0, 4, "give 0 (verbose) to 4 (fatal)")])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted and ignored: there is one level of verbose text."""
    whole_within("verbosity", verbosity, 0, 1 << 31, "give a number, 0 or more")


def warn_once(text: str, severity: int) -> None:
    """Log a warning once per process, if `severity` allows warnings."""
    if severity <= WARNING:
        _warn(text)


@cache
def _warn(text: str) -> None:
    LOG.warning(text)
