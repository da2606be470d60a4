"""The built-in plugins: ordinary ones, reached through jobkit-queue's own entry points."""
