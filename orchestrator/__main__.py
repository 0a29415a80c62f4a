"""`python -m orchestrator`: the command without its console script."""

from orchestrator.cli import main

main()
