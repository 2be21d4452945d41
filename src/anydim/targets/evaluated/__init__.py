"""Loop IR in plain Python on numpy arrays: slow, and every access is checked.

In: kernels and host code in loop IR, arrays. Out: the arrays as they are afterwards, or an error.
`evaluator.py` is the walk, `functions.py` what functions mean, `space.py` the memory, by name and
by address; `groups.py` runs the items of a group in turns, with what they do together in `items.py`
and `fragments.py`, and `tiles.py` has registers of matrices. `device.py` is a device of it.
"""

from anydim.targets.evaluated.device import EvaluatedDevice

__all__ = ["EvaluatedDevice"]
