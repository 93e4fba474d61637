"""Objectives that pretrain recurrent encoders alone."""
