"""How products are computed: the replaceable part behind an operator."""
