"""Generates the host code of a program, and compiles and links it with its kernels.

Input: a program's records (`program/`) and a target. Output: an executable (`runtime/`).

    device_api/      device runtime API as host code
"""
