"""Text to vectors: sentence blocks, checkpoints and the ONNX serving engine.

Importing this package, or any module of its serving half, never imports torch.
"""

import os

# Importing ONNX Runtime starts a client that reports its use to its maker, unless this is set.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
