"""What keeps faults from spreading.

``breaker`` stops asking what has failed again and again, ``rate`` bounds how often something is asked, both for all
workers together through Redis; ``tolerant`` lets work go on where Redis does not answer; ``redact`` takes secrets and
personal data out of texts.
"""
