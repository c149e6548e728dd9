"""What a container on a machine is started with: rights, settings, the pull of its image and its logins."""
