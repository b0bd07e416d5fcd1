"""What the model is sent, and what may leave it; all of it pure.

layers.py what there is to send and what it costs, kernel.py what is known (and what outlives a compression),
results.py the bounds of a turn's tool results, recalled.py messages that were asked back, fit.py packs all of it under
the token budget, pressure.py when and what to compress, heuristic.py summaries without a model.
"""
