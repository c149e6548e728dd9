"""Batch scripts of Slurm (sbatch, as of 24.11), read as jobs."""
