"""Training: ``train``, runs and their folders, schedules, normalisation, and the algorithms."""
