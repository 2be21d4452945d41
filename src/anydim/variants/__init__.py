"""Other bodies for the sites of a program: which there are, when they are made, which one serves.

In come recipes of sites and the sizes that came to them; out go bodies that native code chooses by
sizes (`runtime/variant_tables.py`), where they are measured to be faster than the generic one.
Floors import only from those above them, and from files of this folder:

    strategies/  what a user chooses: which bodies there are, when they are made
"""
