"""Tools: declared, checked, run in child processes; their results, errors and shared memory.

``declare`` the decorator for users' functions · ``targets``, ``custom`` users' files · ``registry`` the tools
of an agent · ``arguments`` arguments against a JSON Schema · ``execution`` runs a call · ``pool``,
``child_main`` child processes · ``outcome`` the outcome of a call · ``references``, ``result_rows``,
``result_tools`` large results · ``files`` of clients and tools, ``file_kinds`` what they are ·
``error_channel`` errors · ``shared_memory`` memory that agents share ·
``agent_tools`` by which they talk
"""
