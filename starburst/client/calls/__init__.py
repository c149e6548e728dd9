"""Python functions as jobs: a call goes along with its job as files, its result comes back in the log."""
