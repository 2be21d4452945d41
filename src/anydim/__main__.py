"""`python -m anydim` is the command line."""

from anydim.cli.app import main

main()
