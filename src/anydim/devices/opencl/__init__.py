"""Devices that OpenCL drives, from version 1.2 on: processors, graphics cards and others.

`libopencl.py` finds libOpenCL and has its functions, `inventory.py` lists platforms and devices,
`programs.py` builds programs and keeps their binaries, `device.py` is the driver, `shared.py` that
of devices that work in the memory of the host, `opened.py` chooses.
"""
