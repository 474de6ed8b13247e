"""Closed-form spectra: parameters and data in, exact spectrum out."""
