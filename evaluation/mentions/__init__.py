"""Texts that name titles of other documents: measuring without such pairs, or mentions."""
