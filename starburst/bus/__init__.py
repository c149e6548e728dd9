"""Events go out, hints come in."""
