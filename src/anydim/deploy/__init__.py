"""Saved programs: a file that is loaded with numpy and nothing else.

In: a compiled model, and code for the processors that were asked for (`save.py`, which needs the
compiler). Out: a file (`container.py`) of records (`records.py`), code images and constants, from
which `load.py` makes a model that runs, plans and explains itself as the compiled one does.

    export/    a model as a folder of C, for programs without Python; needs the compiler
"""
