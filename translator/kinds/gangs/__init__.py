"""Kinds whose tasks one of them starts on all others: batch scripts over several nodes, and Ray."""
