"""How good a system is: judgements, metrics, baselines, reports. Serving never imports it."""
