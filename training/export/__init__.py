"""Weights to ONNX graphs in fp32, fp16 and int8, with parity and quality gates. Needs torch."""
