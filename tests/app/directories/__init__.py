"""Directories that go along with jobs."""
