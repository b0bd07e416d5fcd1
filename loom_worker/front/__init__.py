"""What a client can ask of Loom: front.py the questions, following.py waiting for a turn and reading its events."""
