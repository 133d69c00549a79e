"""Fine-tuning in the manner of scikit-learn: estimators for grids, pipelines and cross-validation."""
