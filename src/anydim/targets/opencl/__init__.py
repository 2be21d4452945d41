"""OpenCL C of kernels, for any device with a driver of OpenCL 1.2 or later.

In: loop IR with the primitives of the dialect. Out: one text per kernel, the functions it calls in
it, for the driver of the device to build (`devices/opencl/`). `dialect.py` has the record of what
is spelled how, `operations.py` the small functions, `render.py` what a kernel's text is.
"""
