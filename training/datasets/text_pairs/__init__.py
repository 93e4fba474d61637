"""Data sets of labelled pairs whose files hold both texts of a pair."""
