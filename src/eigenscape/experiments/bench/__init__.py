"""The same work for us and for the tools that people use instead, in units of one gradient."""
