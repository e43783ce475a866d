"""Import paths that vLLM is given as text, so that it can import them late and in any process.

Not the classes: importing this file imports nothing.
"""

MODEL_PATH = "inkling_core.serving.model:InklingForServing"
MTP_PATH = "inkling_core.serving.mtp:MtpIsNotServed"
SCHEDULER_PATH = "inkling_core.serving.scheduler.InklingScheduler"
RENDERER_MODULE = "inkling_core.serving.renderer"
RENDERER_CLASS = "InklingRenderer"
