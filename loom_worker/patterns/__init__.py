"""Domain knowledge beside the message.

Files to patterns: library (the folder), entries (formats), flat (one pattern), parts, fields, aliases; lint, lint_keys,
lint_rules and lint_sql tell what is wrong with them. Patterns to questions: match and index (TF-IDF), words, calibrate,
rerank, effect; live and watch keep up with the files; render and tools give patterns to the model.
"""
