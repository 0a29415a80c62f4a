"""Frozen qualification records that ship with the package."""
