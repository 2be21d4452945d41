"""Random functions of torch, compiled beside eager torch: `python -m tests.torch.functions`."""
