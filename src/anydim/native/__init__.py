"""Records of a program -> the host code around its kernels, compiled and linked with them.

In come a program's records (`program/`) and a target; out goes an executable (`runtime/`).

    device_api/      verbs of devices as functions of host code
"""
