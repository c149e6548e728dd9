"""Whether a Starburst has what it needs, and how to mend what it lacks."""
