"""The `loom` command. Each module is imported when its command runs, and imports what is slow to load even later.

``main`` is the group. Processes: ``process`` (`loom up`, and single ones), ``fork_server`` (from which `loom up`
forks them), ``running`` (status, stop, logs, backup, bench) and ``init`` (a new project, and its settings). Asking a
running Loom over ``http`` and ``sse``: ``show`` holds what these commands share, ``resources`` those that do little
more than one request; ``talk`` (ask and chat), ``turns``, ``trace``, ``sessions``, ``agents``, ``patterns``,
``workflow``, ``runs`` (with the tree of ``stage_tree``) and ``learned`` (layers of agents) have more to say. ``skill``
manages skills, ``keys`` API keys and the audit. ``doctor`` looks at an installation with ``checks``,
``setting_checks`` and ``growth``; ``move`` brings all rows to another database.
"""
