"""`starburst demo`: forty real jobs, a small cluster and cloud, and the bill beside what others would pay."""
