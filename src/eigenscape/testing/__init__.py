"""Public oracles: losses and matrices whose spectrum is known."""
