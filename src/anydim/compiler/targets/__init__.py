"""Targets: code generation for kinds of machines, one record and one folder each.

Input: kernels in loop IR and host code. Output: objects, linked and loaded.

    functions/  math functions that machines lack, expanded in loop IR for all of these:
    llvm/       CPU code through LLVM
    c/          C11 for any C compiler
    opencl/     OpenCL C for the driver of a device
    cuda/       CUDA C++ for NVIDIA's devices
    evaluated/  an interpreter in plain Python, every access checked
"""
