"""What Loom shows without an API key: a sample shop, and a scripted model that answers questions about it.

``scripted`` is the model, and ``steps`` plays its turns: ``questions/`` reads what is asked, ``slots`` its number and
periods, ``pattern_queries`` the queries of a matched pattern; ``compose`` writes SQL, ``answer`` and ``rows`` word what
came back. ``workflows/`` holds the workflows that ship with the shop; ``prompts`` reads what a workflow adds to a
question, and ``writing`` makes reports and summaries. ``shop`` builds the database: ``shop_catalogue`` has products,
promotions and employees, ``shop_days`` the trade; ``shop_figures.yaml`` holds what its tables can be asked and by which
words; ``shop_words.json``, ``shop_tables.sql`` and ``shop_indexes.sql`` are data, read when the shop is built.
"""
