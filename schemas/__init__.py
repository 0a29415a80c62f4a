"""The JSON Schemas of every record kind, one file a kind and version."""
