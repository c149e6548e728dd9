"""The nouns of Starburst as frozen types; imports nothing but the standard library."""
