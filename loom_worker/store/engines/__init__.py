"""The databases that Loom can stand on, each behind the same protocol.

``engine`` says what an engine must be able to do, and names the locks of writers; ``sqlite`` is a file of this host,
read and checked by ``sqlite_file``, copied by ``sqlite_backup`` and kept small by ``sqlite_space``; ``postgresql`` is a
server for many hosts, whose errors and address ``postgresql_server`` knows, and of which ``postgresql_report`` tells.
``sqlite_search`` and ``postgresql_search`` look words up in the index of each; ``move_ends`` are the two databases of a
move.
"""
