"""A turn's event log.

``log`` keeps it in Redis (with ``*.lua``), ``news`` hears that it has changed, ``writer`` writes it while the turn
runs, ``rebuild`` rebuilds it from the journal.
"""
