"""Fronts: what Loom says in other protocols, so that clients which people already have can talk to it.

A front translates between a protocol and the package of services; it has no table and no state of its own. ``a2a/`` is
the Agent2Agent protocol. The web mounts them.
"""
