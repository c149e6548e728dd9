"""Steps of the scheduler: each changes the state in one way and asks for actions."""
