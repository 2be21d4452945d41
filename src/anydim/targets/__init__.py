"""What can compile a kernel: one record and one folder each."""
