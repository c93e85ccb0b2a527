"""Where many runs are made: on this machine, on a Ray cluster, or as jobs of Slurm.

One run is one idempotent command on a folder that all machines share, and exact resume is the fault tolerance. So an
executor only starts runs, starts them again, and hands on what they tell.
"""
