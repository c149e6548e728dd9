"""Jobs that share rented machines: tables and figures of Eva and Stratus, and both papers together."""
