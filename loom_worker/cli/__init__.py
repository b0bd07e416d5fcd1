"""The ``loom`` command. A command's module is imported when it is called, and imports what is heavy when it runs.

``main`` is the group; ``up`` starts, ``running`` tells and stops; ``process`` holds the single processes;
``ask``, ``chat`` and ``show`` talk to a running Loom through ``http`` and ``sse``, and say it through ``talk``;
``doctor`` prints ``checks`` and ``knobs``.
"""
