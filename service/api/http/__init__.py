"""What surrounds a route: admission, errors, problem documents."""
