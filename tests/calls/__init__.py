"""Tests of jobs that Python starts."""
