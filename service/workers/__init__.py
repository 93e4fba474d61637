"""What computes outside the event loop: scheduler, fair queue, block cache, rerank pool."""
