"""Frontends: convert the sources that users compile to graphs.

Input: ONNX models, programs of torch, texts in the language, calls of a `Builder`; output: graphs.
`table.py` lists the frontends, a record for each kind of source.

    onnx/        ONNX files
    torch/       programs of torch.export, graphs of torch.fx
    structures/  definitions over structures, by levels of calls
    recursion/   definitions of several nodes: recursion with a bound, `while`, rows, algorithms
"""
