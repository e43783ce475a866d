"""vllm-gaudi's worker for any model, with the mended faults and nothing else of ours."""

from unittest import mock

from inkling_hpu.gaudi.imports import HPUModelRunner, HPUWorker, hpu_worker
from inkling_hpu.upstream_fixes import UpstreamFixes


class FixedRunner(UpstreamFixes, HPUModelRunner):
    """The runner under test."""


class FixedWorker(HPUWorker):
    """Makes FixedRunner."""

    def init_device(self):
        with mock.patch.object(hpu_worker, "HPUModelRunner", FixedRunner):
            super().init_device()
