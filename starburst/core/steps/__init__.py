"""Steps of the scheduler: each module makes one kind of change to the state and requests actions."""
