"""Going out to hosts that others name: address (where one may go), dial (a connection that cannot outlive its time)."""
