"""Agents as files: load.py reads the YAML, default.yaml is the agent that ships."""
