"""Kinds of operators: JobSet, Kubeflow's training jobs, MPIJob, Volcano Job; one file each."""
