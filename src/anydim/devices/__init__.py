"""What can run kernels beside the host: a driver for each kind of device.

In come verbs (allocate, copy, launch, wait), called by host code through words of a table, and
objects of a target; out go addresses, work done in order, counts, or an error in our words.

    opencl/ devices that OpenCL drives
    engines/    of others, which take whole parts
"""
