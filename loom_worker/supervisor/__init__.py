"""`loom up`: every process on one machine, restarted when it dies.

``up`` puts it together, ``run`` is the loop, ``decide`` says purely what the loop does next; ``specs`` names the
processes, ``processes`` starts and signals them through the shim ``child``, ``rounds`` finds those that run and do no
work, ``wake-up`` wakes the loop; ``home`` keeps the lock, the state file and the secrets, ``logs`` the rotated logs,
``ports`` finds free ones, ``valkey`` the embedded server; ``ready`` asks whether all serve, ``watcher`` tells it,
``screen`` says what runs where.
"""
