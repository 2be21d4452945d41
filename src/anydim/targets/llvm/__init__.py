"""CPU code through LLVM.

    text = render_kernel(kernel)                    render.py    loop IR -> LLVM text
    objects = compile_modules({"k": text})          compiler.py  text -> object code, cached
    loaded = load(objects.values(), ["k"])          loader.py    object code -> addresses
    launch(kernel, arrays, sizes, start, stop)      run.py       all of it on numpy arrays, once
"""
