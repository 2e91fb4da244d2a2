"""Hold the version: the single place from which the build, the journal and the metrics read it."""

__version__ = "0.1.0"
