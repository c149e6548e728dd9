"""What runs while the scheduler runs: the controller and the tasks around it."""
