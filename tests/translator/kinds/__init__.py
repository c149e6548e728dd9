"""Kinds of jobs that are no manifests."""
