"""Reverse-mode derivatives of groups, as definitions of the language.

`reverse.py` walks steps backwards (`step_adjoints.py` one statement, `scalar.py` one function,
`flow.py` one expression), `placement.py` turns what an element receives into a statement over the
elements of its tensor, `survival.py` decides which values a loop overwrites and has to save,
`activity.py` which tensors have derivatives, `liveness.py` drops what nothing reads, and
`surface.py` prints the result as a definition. `derive.py` is the entry point.
"""
