"""Tools the model may call: registry (which there are, and whether a call may run), call (running one)."""
