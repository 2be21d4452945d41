"""Emission of loop IR, shared by the loops of all templates.

In: expressions of the language, and positions in a loop nest. Out: values and steps of `ir`.
"""
