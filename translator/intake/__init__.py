"""Takes texts of manifests in: which documents are jobs, and under which conditions."""
