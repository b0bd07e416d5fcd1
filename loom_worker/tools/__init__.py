"""Tools: declared, checked, run in child processes; their results, errors and shared memory.

``declare.py``, ``schema_of.py`` the decorator for users' functions · ``custom.py``, ``targets.py``, ``live.py`` users'
files · ``registry.py`` the tools of an agent · ``schemas.py``, ``arguments.py`` arguments against a JSON Schema ·
``execution.py`` runs a call · ``pool.py``, ``child.py``, ``child_main.py``, ``wire.py`` child processes ·
``outcome.py`` what became of a call · ``references.py``, ``result_preview.py``, ``result_rows.py``,
``result_query.py``, ``result_tools.py`` large results · ``error_channel.py`` errors · ``shared_memory.py`` what agents
share
"""
