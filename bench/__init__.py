"""Benchmarks: `make bench` prints one JSON line a figure, then a table. See bench/run.py.

``figures/`` holds what is measured; ``system`` and ``crew`` run Loom, ``model`` a model behind HTTP, ``client`` and
``load`` ask for turns, ``noop`` is what figures are compared with; ``processes`` reads
/proc, ``stats`` and ``report`` make figures of what was seen.
"""
