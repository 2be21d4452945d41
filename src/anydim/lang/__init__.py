"""The comprehension language: text, surface tree, instantiation, printing, evaluation.

In come texts and the types of arguments; out go groups of statements, the one form of dense
computation that all later rooms speak. `functions.py` has the scalar functions. Folders import only
from those above them:

    tree/         scalar expressions, comprehensions, groups: the records, and walks over them
    meaning/      what a group computes, by numpy
    surface/      grammar, parser, printer, hints
    interpreter/  a definition and arrays -> arrays, by Python; it shares nothing with resolve/
    resolve/      a definition and types of arguments -> a group
    dependence/   which loops may run in any order
"""
