"""The commands: each parses, calls, prints and ends with its exit code. Nothing else.

A command is one function here and one line in `orchestrator.cli`. Its imports are inside it, so that `--help`
answers at once.
"""
