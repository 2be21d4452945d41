"""Devices with an OpenCL driver, from version 1.2 on: processors, graphics cards and others.

`libopencl.py` loads libOpenCL and its functions, `inventory.py` lists platforms and devices,
`programs.py` builds programs and caches their binaries, `device.py` is the driver, `shared.py` the
one of devices that work in host memory, `opened.py` chooses.
"""
