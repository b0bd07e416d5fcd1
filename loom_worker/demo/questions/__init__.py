"""Questions in English to SQL by rules, for the scripted model: completely or not at all.

``steps`` plays a turn. ``words`` replaces a question's words by terms, ``clauses`` and ``heads``
read them, and ``parse`` makes a ``plan`` of it; ``values`` looks names up in the database. ``shop`` describes a shop's
tables, ``compose`` writes SQL for them, ``answer`` puts the result into words, and ``decisions`` makes a choice of it;
``tables`` answers questions about the tables of any database.
"""
