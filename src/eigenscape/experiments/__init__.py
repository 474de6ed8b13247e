"""Data, training runs and figures."""
