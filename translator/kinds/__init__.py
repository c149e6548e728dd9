"""Kinds of jobs that are no Kubernetes Job or Pod, each read as the batch/v1 Job that does the same."""
