"""Operator in, result with certificate out."""
