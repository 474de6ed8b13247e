"""Everything known about one model in one object."""
