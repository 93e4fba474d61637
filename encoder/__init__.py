"""Text to vectors: sentence blocks, checkpoints and the ONNX serving engine.

Importing this package, or any module of its serving half, never imports torch.
"""
