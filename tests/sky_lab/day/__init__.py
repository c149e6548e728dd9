"""A day in small: many jobs of many kinds on the laboratory while a seed draws what goes wrong."""
