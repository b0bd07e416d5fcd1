"""Servers of the Model Context Protocol, run as processes by tests."""
