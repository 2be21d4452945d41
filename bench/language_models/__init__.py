"""Language models beside llama.cpp, OpenVINO GenAI, vLLM and transformers (`__main__.py`)."""
