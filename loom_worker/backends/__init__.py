"""The data an agent works on.

SQL: ``sql`` gives the tools, which ``specs`` describes. ``schema`` and ``duckdb_schema`` read the tables, ``catalogs``
keeps them, ``scope`` leaves out what an agent may not see. ``parse`` (with ``functions``) and ``resolve`` judge a
statement; ``servers`` runs it, or on SQLite ``statements``, ``sqlite_process`` and ``sqlite_guard``. ``results`` makes
JSON of the rows, ``complaints`` and ``hints`` text of the errors. ``shop`` makes the sample data.

Beside it: ``rest/`` (an OpenAPI document), ``documents/`` (a folder of files), ``mcp/`` (tool servers).
"""
