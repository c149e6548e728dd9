"""The durable state: one SQL database that all processes of a home share."""
