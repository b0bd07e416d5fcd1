"""What every package builds on.

``errors`` is the error tree, ``values/`` holds the frozen values that packages exchange. ``settings`` reads the
environment into the tree that ``settings_tree`` declares, with ``variables`` (parsers) and ``env`` (known names).
``yaml_files`` and ``fields`` read files that people write, and ``live_files`` follows them while they change. ``text``
cleans, shortens and fences text, ``words`` splits it for search and matching, ``date_ranges`` reads the dates in it.
``redis_client`` and ``sqlite_driver`` choose and configure the drivers. ``logs`` formats log records, with the ids of
what their thread works on (``log_context``); ``monitor`` is what Flower is told; ``metrics`` are what processes count,
and ``metric_recorder`` adds it up.
``dispatcher`` is how processes reach each other; ``stopping`` lets long work know that the process stops;
``child_process`` starts commands that die with their parent, ``isolation/`` hides secrets from tools, and
``crash_points`` are the named places where tests kill a process. ``cron`` says when expressions are due.
"""
