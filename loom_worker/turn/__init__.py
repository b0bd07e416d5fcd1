"""The turn as saved state.

work.py what has been done · decide.py what next (pure) · run.py the loop that does it · reply.py one call of the
model · plan.py a reply's tool calls · saying.py the messages of a turn · asks.py hears of a cancel ·
patience.py how long to go on · serve.py doors for the tasks · loom.py what
the loop works with
"""
