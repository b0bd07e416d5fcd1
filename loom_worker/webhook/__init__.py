"""Webhooks: they tell the caller how a turn ended.

``body`` writes what they say, ``sign`` signs it, ``send`` checks where it may go and makes one attempt, and says what
follows it, ``deliver`` takes deliveries from the outbox and stores what became of them.
"""
