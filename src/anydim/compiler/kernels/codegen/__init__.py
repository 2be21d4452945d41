"""Emission of loop IR, shared by the loops of all templates.

Input: expressions of the language, and positions in a loop nest. Output: values and steps of `ir`.
"""
