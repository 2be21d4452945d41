"""Operating systems that saved code runs on.

Input: the bytes of code, checked. Output: their address in executable memory, and the features of
this processor.

    table.py    a row for each system; each of the other modules is the loader of some of them
"""
