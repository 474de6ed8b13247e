"""Results become figures and a page; nothing is computed here."""
