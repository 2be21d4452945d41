"""Writing loop IR: what the loops of all templates are made of.

In come expressions of the language and places of a loop nest; out go values and statements of `ir`.
"""
