"""Names that vLLM is given as text: import paths, so that it can import late and in any process,
and the architectures that they stand for.

Not the classes: importing this file imports nothing.
"""

ARCHITECTURES = ("InklingForConditionalGeneration", "InklingForCausalLM")

MODEL_PATH = "inkling_core.serving.model:InklingForServing"
MTP_PATH = "inkling_core.serving.mtp:MtpIsNotServed"
SCHEDULER_PATH = "inkling_core.serving.scheduler.InklingScheduler"
RENDERER_MODULE = "inkling_core.serving.renderer"
RENDERER_CLASS = "InklingRenderer"
