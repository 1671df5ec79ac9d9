import os

from hypothesis import settings

pytest_plugins = ["pytester", "tests.shared_summary"]

# Short by default; `pytest --hypothesis-profile=long tests/core/test_properties.py` searches for minutes.
# On CI the examples are the same in every run: a change is judged by what it changes, and the search goes on at the desk.
settings.register_profile("short", max_examples=40, deadline=None, derandomize=bool(os.environ.get("CI")))
settings.register_profile("long", max_examples=2_000, deadline=None)
settings.load_profile("short")
