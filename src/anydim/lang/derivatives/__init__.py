"""Reverse-mode derivatives of groups, as definitions of the language.

Input: a group. Output: a definition that takes its inputs and the cotangents of its float results,
and returns the cotangents of its float inputs. `derive.py` is the entry point:

    activity.py       the tensors that have derivatives
    normal.py         combinations other than sums as assignments
    scalar.py         a rule for each scalar function; `flow.py`: through one expression
    placement.py      what the elements of a tensor receive, as a statement over its elements
    step_adjoints.py  one statement; `cotangents.py`: the names and definitions of cotangents
    reverse.py        blocks, loops and branches backwards, and the values that are saved for them
    survival.py       the values that later writes overwrite
    liveness.py       removal of steps that nothing needs
    surface.py        steps as a definition
"""
