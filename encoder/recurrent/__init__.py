"""Reading a document with a recurrent encoder, segment by segment."""
