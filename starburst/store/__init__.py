"""The durable memory of a Starburst: one database that outlives the processes that use it."""
