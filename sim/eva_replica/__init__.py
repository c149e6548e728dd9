"""A replica of Eva's simulator (EuroSys'25, section 5), kept for the published tables only.

It reproduces the published cost of one machine per task to the cent. Its fleet is not the one that ships:
every task is replanned in rounds, nothing joins, no move is weighed against what a job still has to run, and
bills are not split. What a user's own scheduler would do is simulated with the core (`sim/shared_cloud.py`).
"""
