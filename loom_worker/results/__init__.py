"""What becomes of a tool's result before the model is sent it.

references.py: large ones are kept apart, read and tidied away; preview.py: what stands in their place; rows.py: what
is in one; tools.py: how the model reads it; query.py: how it asks it by SQL; errors.py: failures, in a line and whole.
"""
