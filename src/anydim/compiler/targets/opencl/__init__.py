"""OpenCL C of kernels, for any device with a driver of OpenCL 1.2 or later.

Input: loop IR with the primitives of the dialect. Output: one text per kernel with the functions it
calls, built by the driver of the device (`devices/opencl/`). `dialect.py` has the record of the
dialect's syntax, `operations.py` the helper functions, `render.py` the text of a kernel.
"""
