"""Which of several schedulers on one store leads."""
