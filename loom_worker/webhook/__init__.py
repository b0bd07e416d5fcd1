"""Telling the caller how a turn ended.

body.py says it, sign.py signs it, address.py guards where it goes, send.py tries once,
schedule.py says what follows.
"""
