"""The comprehension language: text, surface tree, instantiation, printing, evaluation.

Input: texts and argument types. Output: groups of statements, the one form of dense computation
that all later stages consume. `functions.py` has the scalar functions. Folders import only from
those above them:

    tree/         scalar expressions, comprehensions, groups: the records, and walks over them
    meaning/      reference semantics of a group, in numpy
    surface/      grammar, parser, printer, hints
    resolve/      a definition and argument types -> a group
    dependence/   dependence analysis: which loops may run in any order
    derivatives/  a group -> the definition of its vector-Jacobian product
"""
