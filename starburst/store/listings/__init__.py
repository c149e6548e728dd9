"""Listings: jobs, instances, decisions and costs as rows, read without whole records."""
