"""The data an agent works on.

``sql`` gives the tools; ``schema``, ``statements`` and ``results`` are its parts, ``sqlite_guard`` and
``sqlite_process`` run the model's SQL on SQLite, ``servers`` on other databases. ``shop`` makes the sample data.
"""
