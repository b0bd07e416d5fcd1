"""The Celery app, its tasks and what they send.

``app`` the app and its options · ``tasks`` all tasks · ``worker`` what they work with in this process ·
``dispatch`` sends tasks, and the messages that wake a lane · ``sweep`` re-sends what was lost · ``task_events`` what
Flower is told · ``transport``, ``incoming``, ``repairs``, ``calm_events`` repairs of Celery and kombu
"""
