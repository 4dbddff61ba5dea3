"""How GPUs are offered to pods and given to them: one package for each way."""
