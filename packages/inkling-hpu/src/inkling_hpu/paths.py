"""Import paths and names that other processes are given as text.

Not the classes: importing this file imports nothing.
"""

MODEL_PATH = "inkling_hpu.serving_model:InklingForGaudi"
WORKER_PATH = "inkling_hpu.worker.InklingWorker"
SCHEDULER_PATH = "inkling_hpu.scheduler.InklingHpuScheduler"
DEVICE_NAME = "hpu"  # vLLM's name for the platform
