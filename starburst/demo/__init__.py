"""`starburst demo`: forty real jobs, a small cluster and cloud, and the bill compared with other policies."""
