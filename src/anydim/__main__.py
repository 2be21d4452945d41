"""`python -m anydim` is the command line."""

from anydim.cli import main

main()
