"""Gangs of each kind with real PyTorch and Ray, on pods and on rented machines."""
