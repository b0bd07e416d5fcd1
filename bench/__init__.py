"""Benchmarks: `make bench` prints one JSON line a figure, then a table. See bench/run.py."""
