"""A folder of documents as three tools: list, search, read.

``backend`` provides them, and describes the folder to the model. ``folder`` walks and opens files, ``refresh`` brings
the index up to date, ``index`` keeps it, ``lookup`` parses a question, queries it and prints lines. Each file is read
in a process of its own: ``reader`` is its program, ``reading`` the parent's side; ``extract`` chooses between ``text``,
``html``, ``pdf`` and ``docx``, each of which returns an extract.
"""
