"""A method, a task and a reader for hilp; pyproject.toml makes them known."""
