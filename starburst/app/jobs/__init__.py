"""Operations on jobs, shared by CLI, HTTP API and bus: submit, cancel, hold, release, explain, list."""
