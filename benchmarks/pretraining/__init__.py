"""What pretraining from random weights gains, for SMITH and ERNIE-Doc."""
