"""Calls of a program: arrays in, native code, arrays out, without a compiler.

In come native code, constants and the arguments of a call; out go new arrays, or an error in words.
"""
