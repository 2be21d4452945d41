"""Other inference engines that run whole subgraphs of a program: onnxruntime, OpenVINO.

Input: an ONNX model and the addresses of its inputs. Output: results, written to their
destinations. No copies: engines read and write the memory of the program.
"""
