"""What the command line runs: a frozen dataclass of settings and ``main(settings)`` for each job.

Recipes write run directories (``relatum.runs``) and read them; they meet nowhere else.
"""
