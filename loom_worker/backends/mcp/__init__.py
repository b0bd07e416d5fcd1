"""Tools of servers of the Model Context Protocol (MCP).

``servers`` is what others use. ``connection`` keeps one server reachable, ``session`` is one conversation with it,
over ``stdio`` (a command, run under ``child``) or ``http``; ``loop`` is the thread all of them live in. ``known``
remembers what servers offered. Pure: ``listing`` (what a server offers), ``schema`` (of a tool's arguments), ``words``
(texts of strangers), ``answers`` (what a call gave), ``config`` (secrets and keys).

The SDK takes a second to load and 40 MB, so nothing here imports it before a server is first talked to.
"""
