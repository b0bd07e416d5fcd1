"""The truth, over SQLAlchemy.

schema.py tables · database.py connections and transactions · failures.py what goes wrong ·
file.py the file itself · backup.py · prepare.py schema versions · sessions.py ·
submit.py a turn is accepted · reading.py looking at turns · claims.py who runs a turn · journal.py what it did, and
its end · calls.py tool calls · messages.py · memory.py what is remembered of a session (recalled.py: what was recalled
into its context; snapshots.py: former L2) · reaping.py what is left of deleted sessions ·
retention.py what goes with time (conversations.py: sessions and old turns; space.py: free pages) ·
search.py full-text search
(search_words.py and english.py: what is asked; search_rank.py: what comes first; passages.py: what stands beside
it) · outbox.py webhooks · ledger.py what was spent · rows.py row to value
"""
