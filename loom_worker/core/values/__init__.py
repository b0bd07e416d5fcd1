"""Frozen values that all rooms share, one file for each kind of thing; json and pages are their common forms."""
