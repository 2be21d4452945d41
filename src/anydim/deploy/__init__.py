"""Saved programs: files that load with numpy alone.

Input: a compiled model, and code for the requested processors (`save.py`, which needs the
compiler). Output: a file (`container.py`) of records (`records.py`), code images and constants.
`load.py` makes a model of it that runs, plans and explains itself as the compiled one does.

    export/    a model as a folder of C, for programs without Python; needs the compiler
    web/       the same for browsers and node: WebAssembly and JavaScript
"""
