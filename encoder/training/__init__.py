"""Pretraining and fine-tuning: tensors and row numbers only, no document ids (torch)."""
