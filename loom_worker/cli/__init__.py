"""The `loom` command. Each module is imported when its command runs, and imports what is slow to load even later.

``main`` is the group. Processes: ``up``, ``running`` (status and stop), ``logs``, ``process`` (single processes),
``fork_server`` (from which `loom up` forks them), ``init`` (a new project) and ``env_file`` (its settings). Talking to
a running Loom over ``http`` and ``sse``: ``ask``, ``chat`` (both print through ``talk``), ``turns``, ``trace``,
``sessions``, ``agents``, ``messages`` (between agents), ``patterns``, ``workflow`` and ``runs`` (both show a run
through ``run_view``, as the tree of ``stage_tree``), ``schedules``, ``learned`` (layers of agents), and ``show`` for
all of them. ``skill`` manages skills, ``keys`` API keys, ``users`` deletes a user, ``facts`` shows what is known of
one, ``audit`` shows who did what. Looking after an installation: ``doctor`` with ``checks``, ``setting_checks`` and
``growth``; ``backup`` and ``bench``.
"""
