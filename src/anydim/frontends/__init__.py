"""Whatever a user compiles becomes a graph.

In come models, texts in the language and calls of a `Builder`; out go graphs.

    onnx/   ONNX files
"""
