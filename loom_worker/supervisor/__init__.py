"""`loom up`: every process on one machine, restarted when it dies.

``up`` starts it, ``run`` is the loop, ``decide`` says purely what the loop does next. ``specs`` names the processes,
``processes`` starts and signals them; ``launcher`` starts the first of each by forking it, and later ones as new
programs. ``health_check`` finds those that run but do no work and reports when Redis is away, ``logs`` rotates logs.
``home`` keeps the lock, the state file, the secrets and where the web is; ``ports`` finds free ports, and ``valkey``
starts the embedded server. ``ready`` asks whether all serve, ``watcher`` announces it, ``doctor`` looks for problems
while everything starts, and ``screen`` prints what runs where.
"""
