"""Run Prometheus, Alertmanager and the console of this machine together, without Docker: ``lastgood stack``."""
