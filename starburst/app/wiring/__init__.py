"""Assembles the components of Starburst from the config."""
