"""Tables of the papers that a command of the distribution does not make."""
