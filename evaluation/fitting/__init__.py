"""Parameters fitted on validation data: calibration, fusion, reranking."""
