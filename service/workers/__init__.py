"""What computes beside the event loop: scheduler, fair queue, block cache, rerank pool."""
