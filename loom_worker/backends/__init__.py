"""The data an agent works on.

SQL: ``sql`` provides the tools, which ``specs`` describes. ``schema`` and ``duckdb_schema`` read the tables,
``catalogs`` caches them, ``scope`` hides what an agent may not see. ``parse`` (with ``functions``) and ``resolve``
decide whether a statement may run, ``parameters`` what may be bound to it; ``servers`` runs it, or for SQLite
``statements``, ``sqlite_process`` and ``sqlite_guard``. ``results`` turns rows into JSON, ``error_text`` and ``hints``
turn errors into text for the model.

Other kinds: ``rest/`` (an OpenAPI document), ``documents/`` (a folder of files), ``mcp/`` (tool servers).
"""
