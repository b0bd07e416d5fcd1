"""The data an agent works on.

SQL: ``sql`` is the backend, on SQLite with a process of ``sqlite_guard`` for each statement. ``statements`` holds its
tools and what the model may send, ``schema`` reads and describes tables and leaves out what an agent may not see.
``parse`` judges a statement; ``servers`` runs it. ``results`` makes JSON of the rows,
``error_text`` text of the errors.

Other kinds: ``rest/`` (an OpenAPI document), ``documents/`` (a folder of files), ``mcp/`` (tool servers).
``tool_schemas``: the arguments of tools, from any source, as providers take them.
"""
