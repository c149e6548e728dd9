"""Values of the core: jobs, events, actions, decisions, settings."""
