"""Build the Grafana dashboards as code; the JSON they make is committed."""
