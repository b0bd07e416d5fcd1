"""Tools of servers that speak the Model Context Protocol (MCP).

``servers`` is what other packages use: it fills in secrets and remembers which tools servers offered. ``connection``
keeps one server reachable, in the one thread of all of them; ``session`` is one conversation with it, over ``stdio``
(a command, started by ``child``) or ``http``. ``listing`` cleans what a server offers. Pure.

The SDK takes a second and 40 MB to load, so nothing here imports it before a server is first used.
"""
