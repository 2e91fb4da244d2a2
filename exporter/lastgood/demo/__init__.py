"""Train a real, small model for ``lastgood demo``: several nodes on one machine, told apart by name only.

``text`` (the corpus), ``model`` (the network), ``train`` (one rank's work) and ``agent`` (one node's agent) run as
subprocesses of the demo's launcher, which lives beside the console and imports no torch.
"""
