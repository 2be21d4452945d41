"""Exports a program for browsers and node: WebAssembly, weights, and JavaScript that calls it.

Input: the records of an exported program (`export/`), LLVM's objects for `wasm32`, with and without
fused steps. Output: `model.wasm` and `model-relaxed.wasm` (`link.py`), `model.weights` in the form
of exported C, `model.js`, with the description of the program that `describe.py` makes,
`model.d.ts` and `index.html`. What `program.c` does in exported C, `model.js` does here: it binds
sizes, lays out the memory of a call and reads the results.
"""
