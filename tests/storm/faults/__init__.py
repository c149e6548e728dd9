"""What goes wrong: one file per subject, one small function or line per fault."""
