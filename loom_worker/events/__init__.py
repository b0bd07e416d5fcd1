"""A turn's event log.

log.py keeps it in Redis, with ``*.lua``. writer.py writes it while the turn runs. rebuild.py rebuilds it from the
journal.
"""
