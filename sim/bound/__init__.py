"""The best possible cloud bill at a given sum of delays: a proven bound below it, a schedule above it."""
