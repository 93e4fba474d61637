"""What of SMITH earns its place: parts taken away and put back."""
