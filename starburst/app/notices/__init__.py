"""Notifications of what was decided: webhooks and e-mail."""
