"""Running graphs on a GPU: execution providers, packed calls, bound inputs and outputs."""
