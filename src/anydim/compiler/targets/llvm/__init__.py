"""CPU code through LLVM.

processor = this_machine()                      host.py      or described(...)
modules = sources([kernel], processor)          render.py    loop IR -> LLVM text, when needed
objects = compile_modules(modules, processor)   compiler.py  text -> object code, cached
loaded = load(objects.code.values(), ["k"])     loader.py    object code -> addresses
launch(kernel, arrays, sizes, start, stop)      run.py       all of it on numpy arrays, once
"""
