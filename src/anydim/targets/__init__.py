"""What can compile a kernel: one record and one folder each.

In come kernels in loop IR and texts of host code; out go objects, linked and loaded.

    functions/  what machines do not compute themselves, written out in loop IR for all of these:
    llvm/       CPU code through LLVM
    c/          C11 for any C compiler
    opencl/     OpenCL C for the driver of a device
    cuda/       CUDA C++ for NVIDIA's devices
    evaluated/  plain Python, every access checked
"""
