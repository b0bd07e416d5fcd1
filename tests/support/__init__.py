"""What several tests share: servers and processes that behave like the real ones."""
