"""Domain types of Starburst, all frozen; imports only the standard library."""
