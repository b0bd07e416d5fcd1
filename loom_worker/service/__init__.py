"""Everything a client can ask for, without HTTP.

``service.py`` the requests · ``allowed.py`` what a session may choose · ``announcer.py`` tells workers and readers ·
``approvals.py`` decisions of people · ``context_report.py`` what the model would be sent · ``turn_waiter.py`` waits for
turns and reads their events · ``wait_reports.py`` what turns wait for · ``pattern_catalog.py`` patterns ·
``metrics.py`` figures and readiness
"""
