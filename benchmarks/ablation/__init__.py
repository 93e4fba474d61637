"""Ablations of SMITH: what each part contributes."""
