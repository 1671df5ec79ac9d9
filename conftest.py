from hypothesis import settings

pytest_plugins = ["pytester", "tests.shared_summary"]

# Short by default; `pytest --hypothesis-profile=long tests/core/test_properties.py` searches for minutes.
settings.register_profile("short", max_examples=40, deadline=None)
settings.register_profile("long", max_examples=2_000, deadline=None)
settings.load_profile("short")
