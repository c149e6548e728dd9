"""Listings: jobs, machines, decisions and costs as rows, read without whole records."""
