"""Questions in English as plans, by rules, for the scripted model: completely or not at all.

``vocabulary`` holds a shop's tables and replaces a question's words by terms, ``parse`` makes a ``plan`` of these, and
``names`` looks names up in the database; ``tables`` reads questions about the tables of any database.
"""
