"""Matrix products of any layout, batched: a group in, a launch with pointwise epilogues out."""
