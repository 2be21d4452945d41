"""Runs compiled programs without a compiler.

Input: native code, constants and the arguments of a call. Output: new arrays, or an error.
"""
