"""Volumes of pods: which nodes the claims of a pod permit, as kube-scheduler's VolumeBinding has it."""
