"""Judges of answers: an answer that scores below the threshold is given anew.

``evaluate`` one judge looks at one answer · ``checks`` judges that follow a rule · ``grounded`` numbers, days and names
of the tools' results (``figures`` numbers in a text, ``evidence`` results as rows) · ``llm`` a model with a rubric ·
``injection`` a model's verdict on texts for guardrails · ``python_judges`` functions of users · ``aggregate`` from
verdicts to one score. When judges are asked, and what comes of it, is in ``turn/judging.py``.
"""
