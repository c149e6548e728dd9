"""Ray: one of the job's own on the tasks of a gang, never SkyPilot's."""
