"""Tools the model may call: how they are declared, found, checked and run.

``declare`` (what users write) with ``schema_of``; ``targets`` (what a target names) and ``custom`` (all of them, with
their problems); ``registry`` (which there are, whether a call may run) with ``schemas``, ``coerce``, ``lossless`` and
``flaws``; ``call`` (running one) with ``outcome``, ``encode`` and ``clean``; ``pool``, ``order``, ``child``, ``pipes``
and ``wire`` (running one in a process that can be killed; its program is ``loom_worker.tools.child_main``).
"""
