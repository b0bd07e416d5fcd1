"""What Loom shows without an API key: a sample shop, and a scripted model that answers questions about it.

``scripted`` is the model; ``slots`` reads numbers and periods of a question, ``pattern_queries`` the queries of a
matched pattern, and ``questions/`` turns questions into SQL. ``workflows/`` holds the workflows that ship with the
shop; ``prompts`` reads what a workflow adds to a question, and ``writing`` makes reports and summaries. ``shop`` builds
the database: ``shop_catalogue`` has its products, promotions and employees, ``shop_days`` its trade;
``shop_figures.yaml`` holds what its tables can be asked and by which words;
``shop_words.json``, ``shop_tables.sql`` and ``shop_indexes.sql`` are data, read when the shop is built.
"""
