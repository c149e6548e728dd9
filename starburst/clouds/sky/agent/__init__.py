"""The agent on a rented machine: what is sent there, and the protocol that it speaks."""
