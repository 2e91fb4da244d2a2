"""Take alerts in from Alertmanager and Grafana, keep them, and know which of them concern no run."""
