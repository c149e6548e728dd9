"""Volumes of pods in the cloud: the storage that replaces them, and its mount paths."""
