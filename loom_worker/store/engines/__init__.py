"""What each database does in its own way: ``sqlite_search`` and ``postgresql_search`` look words up in its index."""
