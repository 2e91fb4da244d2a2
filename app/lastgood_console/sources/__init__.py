"""Where the console's facts come from: run directories first, and a Prometheus for trends and for what is gone."""
