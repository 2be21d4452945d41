"""Six workloads whose sizes change from call to call, each installed engine in turn."""
