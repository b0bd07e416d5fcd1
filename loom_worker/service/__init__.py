"""What a client can ask of Loom.

``front.py`` has the questions, ``following.py`` waits for turns and reads their events, ``allowed.py`` says what of its
agent a session may change.
"""
