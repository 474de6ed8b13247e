"""The papers' figures: one package or module per paper, one set of functions per figure."""
