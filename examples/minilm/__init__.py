"""The MiniLM sentence encoder: its ONNX file, its tokenizer, sentences to encode."""
