"""What Prometheus and Grafana are told about shared GPUs: the alert rules and the dashboard, as values."""
