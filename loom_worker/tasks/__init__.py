"""The doors.

app.py the Celery app · transport.py, backend.py its repairs · publish.py sending · turn.py, tool.py, webhook.py the
tasks · sweep.py the one remedy for lost signals · process.py, alone.py processes · logs.py
"""
