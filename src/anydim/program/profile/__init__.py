"""Where the time of calls goes: `model.profile`.

In comes a model and inputs; out go times of launches beside what plans say of them.
"""
