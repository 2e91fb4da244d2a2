"""Write the run directory of a long run on a large fleet, as the real writers leave it, and measure who reads it.

    from fleet_run import write_fleet_run
    run_dir = write_fleet_run(Path("/tmp/fleet/runs"), ranks=64, days=2, seed=1)

``folder`` then is a folder of runs: the run directory lies in it, and beside it ``.lastgood``, where the ledger looks
for posted alerts.
"""

from fleet_run.writing import RUN, write_fleet_run

__all__ = ["RUN", "write_fleet_run"]
