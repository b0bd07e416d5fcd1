"""What an agent can do about its memory.

tools.py: the tools; shown.py: messages as they answer them; rerank.py: what was found, in a model's order; known.py:
what the model wants to be kept in mind.
"""
