"""Profiles of calls: `model.profile`.

Input: a model and inputs. Output: times of launches next to the estimates of the plan.
"""
