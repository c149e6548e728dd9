"""The supervisor of one task, a process of its own: standard library only, here and on rented machines."""
