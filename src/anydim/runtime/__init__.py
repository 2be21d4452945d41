"""Runs compiled programs without a compiler.

Input: native code, constants and the arguments of a call. Output: new arrays, or an error.

    devices/    drivers of devices besides the host
    program/    records of a program: steps, buffers, memory; plans, profiles, limits
"""
