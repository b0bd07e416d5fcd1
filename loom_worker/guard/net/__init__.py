"""Connections to hosts that others name.

``address`` decides which hosts may be contacted, ``dial`` connects so that nothing outlives its deadline, ``http``
sends one request over such a connection, ``stream`` reads its answer while it comes.
"""
