"""What ``benchmarks/rules.py`` is made of: a fleet's samples, and the servers that hold them."""
