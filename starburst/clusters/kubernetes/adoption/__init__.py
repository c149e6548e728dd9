"""Objects that users create in the cluster become jobs: reading, rights, submission, marks."""
