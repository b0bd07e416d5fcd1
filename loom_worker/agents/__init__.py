"""Agents as files: load.py reads the YAML, memory.py its rules of memory, default.yaml is the agent that ships."""
