"""Turn one table of alert rules into files for Prometheus, Kubernetes and Grafana."""
