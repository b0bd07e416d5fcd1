"""A turn's event log: log.py keeps it in Redis, writer.py is the running turn's writer, rebuild.py makes it anew.

flusher.py writes together what comes faster than anyone reads.
"""
