"""What any table needs: connections, id lists, block vectors, task state."""
