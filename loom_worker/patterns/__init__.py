"""Patterns: tried ways to answer kinds of questions, as YAML files that are matched to a question.

From files to patterns: ``library`` reads the folder, ``library_entries`` finds the patterns of a document and
builds them, ``chunks`` reads its parts, ``fields`` single values, and ``aliases`` knows the keys and their other names.
``lint`` reports errors and warnings.

From patterns to questions: ``match`` ranks the patterns with ``index`` (numpy alone), which ``fit`` makes with
scikit-learn and ``index_store`` keeps in files; ``words`` cuts texts into terms, with the meanings of ``synonyms.txt``;
``rerank`` lets a model decide close calls.

At run time: ``live`` follows the files, ``events`` publishes what changed, ``render`` and ``tools`` show
patterns to the model.
"""
