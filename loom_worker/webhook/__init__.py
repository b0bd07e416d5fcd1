"""Webhooks: they tell the caller how a turn ended.

``body`` writes what they say, ``send`` checks where it may go, signs it, makes one attempt and says what follows it,
and ``deliver`` takes deliveries from the outbox and stores what became of them.
"""
