"""Integration with torch: the backend of torch.compile, and definitions as operators of torch.

Input: graphs and tensors of torch. Output: compiled calls that torch records. The compiler imports
none of it (`base/integrations.py`); frontends/torch reads exported programs.
"""
