"""What a collection keeps besides documents: jobs, answers to keys, feedback, standing queries."""
