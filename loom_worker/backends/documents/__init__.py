"""A folder of documents as three tools: list, search, read.

``backend`` is the way in. ``folder`` walks and opens, ``refresh`` brings the index up to date, ``index`` keeps it,
``lookup`` asks it (``words`` makes its questions), ``page`` prints lines. A file is read in a process of its own:
``reader`` is its program, ``reading`` the other end; ``kinds`` says who reads what, ``text``, ``html``, ``pdf`` and
``docx`` do, and give an ``extract``.
"""
