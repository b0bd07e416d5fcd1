"""What agents remember by name and tell each other: spaces.py: whose it is; watch.py: waiting; tools.py: the tools."""
