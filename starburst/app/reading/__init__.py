"""Parses untrusted manifests in worker processes with bounded memory and time."""
