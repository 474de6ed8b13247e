"""The ledger of claims: every mathematical sentence of the papers, with a verdict and a check that is run afresh."""
