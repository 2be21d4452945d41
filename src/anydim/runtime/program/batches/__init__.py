"""Batching: inputs of different sizes run in groups under a memory limit.

Input: a model, its records, and a list or iterator of inputs. Output: results in the same order.

    mapping.py         `map`: windows of items, and groups of padded items
    ragged_map.py      `map` of models with ragged batches
    ragged_form.py     items and requests of these models: read, joined, results split
    row_inputs.py      reads their inputs
    item.py            an item or a request with its costs; what reads and runs them
    layout.py          items of other models: joined along the batch, padded, results split
    map_arguments.py   checks the arguments of `map`
    cuts.py            the groups with the least time
    costs.py           bytes and seconds of calls; work.py has the formulas
    sampled_rows.py    whether rows of a call depend on each other
    bar.py             progress
"""
