"""What the notebooks of the course need: drawings, a stepper through one query tile, exercises and their checkers."""
