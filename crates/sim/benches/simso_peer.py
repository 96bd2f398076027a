"""The peer of `cargo bench -p hyoshi-sim`: SimSo on the same 100 operations under EDF.

    pip install simso && python3 crates/sim/benches/simso_peer.py
"""

import time

from simso.configuration import Configuration
from simso.core import Model

SECONDS = 2

configuration = Configuration()
configuration.cycles_per_ms = 1_000_000
configuration.duration = SECONDS * 1000 * configuration.cycles_per_ms
configuration.etm = "wcet"
for index in range(100):
    period = 10.0 + index * 7919 % 191
    configuration.add_task(
        name=f"o{index}", identifier=index + 1, period=period, activation_date=0,
        wcet=period * 0.8 / 100, deadline=period, abort_on_miss=False,
    )
configuration.add_processor(name="CPU", identifier=1)
configuration.scheduler_info.clas = "simso.schedulers.EDF_mono"
configuration.check_all()

model = Model(configuration)
started = time.perf_counter()
model.run_model()
elapsed = time.perf_counter() - started
jobs = sum(1 for task in model.results.tasks.values() for job in task.jobs if job.end_date is not None)
print(f"SimSo: {jobs} job completions in {elapsed:.2f} s, {jobs / elapsed:,.0f} a second")
