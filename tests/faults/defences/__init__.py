"""Every defence is proved by its absence: `make proof` takes each out of a copy and sees its test fail.

One TOML file for each part of the house, one entry for each defence:

    [[defence]]
    name = "links in a model directory are not followed"
    file = "src/larvatus/core/regular_files.py"
    out = '''            raise error(f"{path} is {name}; {way}")'''
    in = '''            return os.stat(path)'''
    test = "tests/faults/test_links.py::test_67_a_link_is_refused"

`out` must stand in the file exactly once; `in` takes its place (nothing, where it is left away). The test must pass
with the defence and fail without it: by an assertion, or, where the entry has `hangs = true`, because a watchdog ends
it. A watchdog would also end a test on a slow machine, so such a test is first seen to pass under the same one.
"""
