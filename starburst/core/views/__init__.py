"""The state as others see it: explained, stored, checked."""
