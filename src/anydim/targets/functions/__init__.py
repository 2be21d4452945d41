"""Functions in loop IR: what a machine does not compute itself, written once for every target.

In: functions of loop IR with any function of `lang/functions.py`, any conversion, any element type.
Out: the same with only what a target's `Primitives` record says it has (`primitives.py`). What is
made of several instructions has names (`Let`), each value one, in the order of evaluation, so a
printer writes every step as it stands and nothing twice.

`legalise.py` walks statements and expressions. `expansions.py` has one row per function: what
writes it, for which element types, at which precision. `writer.py` is what a row is written with.

A new function of the language is one row in `lang/functions.py` and one row in `expansions.py`,
written with `Lanes`; no target changes, and `targets/evaluated/` runs it.
"""
