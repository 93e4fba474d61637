"""CoLDE beside SMITH, trained on the same pairs."""
