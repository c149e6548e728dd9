"""Which jobs wait how long, under which budget: tables and figures of the Starburst paper, and our own."""
