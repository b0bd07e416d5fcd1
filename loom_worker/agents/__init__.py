"""Agents as files: load.py reads the YAML, memory.py its rules of memory, live.py follows them; default.yaml ships."""
