"""qualgate's orchestrator: runs the fixture in a fresh process and judges what it left.

Nothing here imports torch, and importing this package imports nothing at all: every command loads
only the modules that it needs.
"""

__version__ = "0.1.0"
