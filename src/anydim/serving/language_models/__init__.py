"""Language models from files of Hugging Face and GGUF, on ragged batches with caches.

Input: a folder or a .gguf file; output: a model that continues texts and answers messages. Needs
safetensors, tokenizers and jinja2, the extra `lm`.

language_model.py  the entry, generation and chat
opening.py         a folder or a file as a graph, a tokenizer and a chat template
hugging_face.py    rows of architectures by config.json; gguf_config.py: by GGUF metadata
config_fields.py   reads fields and files that are not trusted; bounded_templates.py: chat templates
tensor_names.py    where files have the weights; weight_files.py reads them
matrices.py        formats of quantised weights
decoder_graph.py   one graph for all architectures; decoder_spec.py says what differs
"""
