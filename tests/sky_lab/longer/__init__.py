"""Tests in the laboratory that take too long for every run of CI: `make sky-longer`."""
