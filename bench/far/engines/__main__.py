"""Measure one task: `python -m bench.far.engines TASK`."""

from __future__ import annotations

import importlib
import json
import sys

from bench.far.measuring import Meter, Task

task = Task(**json.loads(sys.argv[1]))
importlib.import_module(f"bench.far.engines.{task.engine}").measure(Meter(task))
