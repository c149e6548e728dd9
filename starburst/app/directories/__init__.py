"""Directories of the submitting machine that go along with a job."""
