"""Guardrails: what texts are searched for, and what becomes of what is found."""

SENSITIVE = ("secret", "card", "ssn", "iban", "phone", "email", "ip")
"""What can be found and removed: secrets, and what identifies a person."""
