"""Recursion and loops whose calls and iterations data decides.

`states.py` cuts definitions into states, `variables.py` finds the types of their variables,
`stack_machine.py` runs one call at a time, and `frontier.py` the calls of all rows of a batch:
calls in the same state together. `sections.py` separates comprehensions from what is no
comprehension (algorithms, other recursion), and `sequence.py` emits them one after another.
"""
