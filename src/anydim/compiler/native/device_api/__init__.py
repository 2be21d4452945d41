"""Device runtime API as host code: entry points on int64s that work on the slots of a device.

Input: only the layouts of those slots (`devices/context.py`, and one per kind of device). Output: a
module, the same for every program with devices (`table.py`).
"""
