"""Structure-aware fuzzing of every way in: manifests, batch scripts, SkyPilot tasks and commands."""
