"""On-prem clusters behind the `Cluster` port."""
