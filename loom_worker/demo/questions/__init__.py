"""Questions in English to SQL by rules, for the scripted model: whole or not at all.

``steps`` chooses what the model does next; ``words`` makes a question's words terms; ``clauses`` and ``heads`` read
them and ``reading`` makes a ``plan`` of it; ``values`` looks names up in the database; ``shop`` knows a shop's tables
and ``compose`` writes SQL for them; ``tables`` answers about tables of any database; ``worded`` is the answer. Apart
from all that, ``named`` makes a call that a message spells out.
"""
