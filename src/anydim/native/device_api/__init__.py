"""Verbs of devices as host code: functions of int64s that work on the words of a device.

In come nothing but the layouts of those words (`devices/context.py`, and that of each kind of
device); out goes one module, the same for every program with devices (`table.py`).
"""
