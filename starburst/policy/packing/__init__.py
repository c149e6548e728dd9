"""The choice of cloud instances for tasks."""
