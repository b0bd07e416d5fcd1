"""Connections to hosts that others name.

``address`` decides which hosts may be contacted and connects so that nothing outlives its deadline, ``http``
sends one request over such a connection, and reads its answer whole or while it comes; ``fetch`` follows redirects.
"""
