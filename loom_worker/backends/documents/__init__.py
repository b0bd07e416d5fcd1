"""A folder of documents as three tools: list, search, read.

``backend`` provides them and describes the folder to the model. ``folder`` walks and opens files, ``index`` keeps and
updates the index, ``lookup`` parses a question, queries it and prints lines. Each file is read in a process of its
own, whose program and whose parent's side are ``reader``; ``extract`` chooses between ``text`` (HTML too), ``pdf`` and
``docx``, each of which returns an extract.
"""
