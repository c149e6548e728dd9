"""A replica of Eva's simulator (EuroSys'25, section 5), kept only for the published tables.

It reproduces the published cost of one instance per task to the cent. It differs from Starburst's cloud: all
tasks are replanned in rounds, no task joins an instance between rounds, moves are not weighed against a job's
remaining time, and bills are not divided. `sim/packing/shared_cloud.py` simulates the real core instead.
"""
