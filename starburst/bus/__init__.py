"""The message bus: publishes the decision log, and receives hints."""
