"""The Celery app, its tasks and what they send.

``app.py`` the app and its options · ``tasks.py`` all tasks · ``worker.py`` what they work with in this process ·
``dispatch.py`` sends tasks · ``wakeups.py`` the messages that wake a lane · ``sweep.py`` re-sends what was lost ·
``transport.py``, ``incoming.py``, ``repairs.py`` repairs of Celery and kombu
"""
