"""torch's operator database as a suite: each entry exported with free dims, at several sizes.

cases.py       an entry as modules with inputs, and the same inputs at other sizes
judge.py       compares results of a backend with those of torch
backends.py    what runs a program: anydim, OpenVINO, TVM
worker.py      runs entries of a queue in a process of its own
__main__.py    the command: runs all, or some, and writes the results
"""
