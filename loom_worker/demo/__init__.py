"""What Loom shows without a key: the sample shop, and a scripted model that answers questions about it."""
