"""Going out to hosts that others name.

address.py says where one may go, dial.py connects so that nothing outlives its deadline, http.py asks one question
over such a connection.
"""
