"""What the model is sent: layers.py what there is to send, fit.py packs it under the token budget."""
