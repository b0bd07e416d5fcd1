"""Tools: declared, checked, run in child processes; their results, errors and shared memory.

``declare``, ``schema_of`` the decorator for users' functions · ``custom``, ``targets``, ``live`` users'
files · ``registry`` the tools of an agent · ``schemas``, ``arguments`` arguments against a JSON Schema ·
``execution`` runs a call · ``pool``, ``child``, ``child_main`` child processes · ``outcome`` the outcome
of a call · ``references``, ``result_preview``, ``result_rows``, ``result_query``, ``result_tools`` large
results · ``error_channel`` errors · ``shared_memory`` memory that agents share ·
``agent_tools`` by which they talk
"""
