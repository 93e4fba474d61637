"""Encoders that the papers compare with: HAN, SMASH, DSSM and ARC-I."""
