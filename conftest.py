pytest_plugins = ["pytester", "tests.shared_summary"]
