"""Tools of servers that speak the Model Context Protocol (MCP).

``servers`` is what other packages use, and the thread in which all sessions run. ``connection`` keeps one server
reachable, ``session`` is one conversation with it, over ``stdio`` (a command, started by ``child``) or ``http``.
``tool_cache`` remembers which tools servers offered; ``server_log`` writes what a server prints into the log. Pure:
``listing`` (what a server offers), ``schema`` (of a tool's arguments, and how untrusted text is cleaned), ``answers``
(the result of a call, and how a session fails), ``config`` (secrets and keys).

The SDK takes a second and 40 MB to load, so nothing here imports it before a server is first used.
"""
