"""The log of anydim, `logging.getLogger("anydim")`: quiet unless its user asks for it.

    logging.basicConfig(level=logging.INFO)

What was compiled is INFO; what of it is far from what the machine could do is WARNING.
"""

from __future__ import annotations

import logging

LOG = logging.getLogger("anydim")
LOG.addHandler(logging.NullHandler())
