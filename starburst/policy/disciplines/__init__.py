"""Queue disciplines for jobs of random size, some with a proven share of the largest throughput.

Source: Psychas and Ghaderi, "Scheduling Jobs with Random Resource Requirements in Computing Clusters"
(INFOCOM 2019). Servers are identical and have one resource. The capacity is a positive integer and each size
an integer from 1 to the capacity, so all comparisons are exact; the caller chooses the unit. No event causes
a scan of all jobs or all servers.
"""
