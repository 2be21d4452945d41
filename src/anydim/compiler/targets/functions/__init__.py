"""Math functions in loop IR for machines that lack them, written once for every target.

Input: functions of loop IR with any function of `lang/functions.py`, any conversion, any element
type. Output: the same with only the primitives of a target's `Primitives` record (`primitives.py`).
An expansion into several instructions names each value once (`Let`), in evaluation order, so a
printer emits every step as it is, without duplicates.

`legalise.py` walks statements and expressions. `expansions.py` has one row per function: its
expansion by element type. `writer.py` is the builder for expansions.

A new function of the language is one row in `lang/functions.py` and one row in `expansions.py`,
written with `Lanes`; no target changes, and `targets/evaluated/` runs it.
"""
