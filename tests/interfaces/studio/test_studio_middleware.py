"""Who may ask: rebound names, other sites and requests without the token are refused; the page may run nothing else."""

from __future__ import annotations

import pytest

START = "/studio/api/learn/start"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8311", "127.0.0.1.evil.example", "", "[::1", "a b", "evil", "10.0.0.1"]
)
def test_a_name_that_is_not_ours_is_refused(studio, host):
    answer = studio.client.get("/studio/api/runs", headers={"Host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["type"] == "Forbidden"


@pytest.mark.parametrize("host", ["127.0.0.1:8311", "localhost:8311", "LOCALHOST", "[::1]:8311", "127.0.0.2"])
def test_names_of_this_machine_are_ours(studio, host):
    assert studio.client.get("/studio/api/runs", headers={"Host": host}).status_code == 200


def test_what_writes_wants_the_token_of_the_address(studio):
    for token in ({}, {"x-studio-token": "wrong"}, {"x-studio-token": "é".encode()}):
        answer = studio.client.post(START, json={}, headers=token)
        assert answer.status_code == 403
        assert "token" in answer.json()["error"]["message"]
    assert studio.client.post(START, json={}, headers=studio.token).status_code == 422  # read, and found to lack a text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_another_site_cannot_post_even_with_the_token(studio, headers):
    answer = studio.client.post(START, json={}, headers={**studio.token, **headers})
    assert answer.status_code == 403
    assert "another site" in answer.json()["error"]["message"]


def test_our_own_page_can(studio):
    headers = {**studio.token, "Origin": "http://127.0.0.1:8311", "Sec-Fetch-Site": "same-origin"}
    assert studio.client.post(START, json={}, headers=headers).status_code == 422


def test_every_answer_has_a_policy_and_scripts_come_from_here_alone(studio):
    for path in ("/studio/api/runs", "/studio/plotly.min.js", "/nothing"):
        policy = studio.client.get(path).headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "script-src" not in policy  # so that default-src holds for scripts
        assert "unsafe-eval" not in policy


def test_plotly_comes_from_its_package_and_is_asked_about_again(studio):
    script = studio.client.get("/studio/plotly.min.js")
    assert script.status_code == 200
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["cache-control"] == "no-cache"
    again = studio.client.get("/studio/plotly.min.js", headers={"If-None-Match": script.headers["etag"]})
    assert again.status_code == 304
    assert studio.client.get("/studio/../app.py").status_code == 404
    assert studio.client.get("/studio/%2e%2e/app.py").status_code == 404
