"""Interpreter of loop IR in plain Python on numpy arrays: slow, every access checked.

Input: kernels and host code in loop IR, arrays. Output: the changed arrays, or an error.
`evaluator.py` walks the IR, `functions.py` implements functions, `space.py` is the memory, by name
and by address; `groups.py` runs the work-items of a group in turn, with their collective operations
in `items.py` and `fragments.py`; `tiles.py` has tile registers. `device.py` is a device with this
interpreter.
"""

from anydim.compiler.targets.evaluated.device import EvaluatedDevice

__all__ = ["EvaluatedDevice"]
