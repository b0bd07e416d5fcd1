"""Loom runs LLM agents as durable background work; the rooms are described in CONTRIBUTING.md."""

__version__ = "0.1.0"
