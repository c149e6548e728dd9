"""Queue disciplines for jobs of random size, some with a proven share of the largest throughput.

Source: Psychas and Ghaderi, "Scheduling Jobs with Random Resource Requirements in Computing Clusters"
(INFOCOM 2019). Servers are alike and have one resource. The capacity of a server is a positive integer and
every size an integer between 1 and the capacity, so all comparisons are exact; how fine a unit is, the caller
decides. No event scans the queue or the servers.
"""
