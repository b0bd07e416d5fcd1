"""The ``loom`` command. A command's module is imported when it is called, and imports what is heavy when it runs.

``main`` is the group; ``up`` starts, ``running`` tells and stops; ``process`` holds the single processes;
``ask``, ``chat``, ``turns`` and ``show`` ask a running Loom through ``http`` and ``sse``, and tell it through ``talk``;
``doctor`` prints ``checks`` and ``knobs``; ``backup`` copies the database. ``judges`` ask rooms about their settings,
``output`` is for what cannot be printed.
"""
