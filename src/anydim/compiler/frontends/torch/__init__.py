"""The torch frontend: exported programs, and graphs of torch.fx, as graphs.

Nothing here is imported before a torch program is compiled: torch is an optional package.

    rows/                  the table of overloads: one row each, by subject
    refusal.py             why a node cannot be imported
    promotion.py           torch's type promotion
    sizes.py               torch's symbolic sizes as size expressions
    builder.py             the builder that rows use
    complex_values.py      complex tensors as pairs of real ones
    memory_order.py        the order of elements in memory, by traced strides
    definitions.tc         definitions that rows use
    symbols.py             dims from symbols: names and bounds
    control_flow.py        cond and while_loop
    called_definitions.py  definitions that graphs call
    importer.py            a graph of torch.fx, node by node
    decompositions.py      what torch decomposes before
    fused_layers.py        layers that eager torch runs as one operator
    recurrent_operators.py LSTM, GRU and RNN as operators of torch, with gradients
    recurrent_tracing.py   torch.compile with recurrent layers kept whole
    resampling.py          resampling by a factor
    graph_results.py       results of torch.compile's graphs: computed, inputs, views, values
    result_views.py        results that are views of inputs or of other results
    exporting.py           export with recurrent layers kept whole
    opening.py             exported programs, files and modules
    outline.py             what a file holds, for `ad.inspect`

Input: `ExportedProgram`, a .pt2 file, or a module with example arguments; a `torch.fx.GraphModule`
for `importer.import_graph`, which torch.compile's backend shares. Output: a `Graph`.
"""
