"""A turn's event log.

``log`` keeps it in Redis (with ``*.lua``), ``writer`` writes it while the turn runs, ``rebuild`` rebuilds it from the
journal.
"""
