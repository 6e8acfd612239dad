"""The console against pages, engines and texts that mean it ill (security cases D11, D12, D38 and D39)."""

from __future__ import annotations

import json

import httpx
import pytest
from playwright.sync_api import Route, expect

from tests.support.browser import KEYS, Host, Visitor
from tests.support.fakes import vectors
from tests.support.false_engine import answer, false_engine, nonce
from tests.support.key_data import BASELINE

pytestmark = [pytest.mark.browser, pytest.mark.process]

FOREIGN_POSTS = """async ([base, bodies]) => {
  for (const [path, body] of bodies) {
    const text = JSON.stringify(body);
    const send = (options) => fetch(base + path, {method: "POST", body: text, ...options}).catch(() => {});
    await send({mode: "no-cors"});
    await send({mode: "no-cors", headers: {"Content-Type": "text/plain"}});
    await send({headers: {"Content-Type": "application/json"}});
    const frame = document.body.appendChild(Object.assign(document.createElement("iframe"), {name: "out"}));
    const form = Object.assign(document.createElement("form"),
      {method: "post", action: base + path, target: "out", enctype: "text/plain"});
    form.append(Object.assign(document.createElement("input"), {name: text.slice(0, -1) + ',"x":"', value: '"}'}));
    document.body.append(form);
    const loaded = new Promise((done) => frame.addEventListener("load", done));
    form.submit();
    await Promise.race([loaded, new Promise((done) => setTimeout(done, 1000))]);
    frame.remove();
    form.remove();
  }
}"""


def test_a_foreign_page_can_post_nothing_that_counts(visitor: Visitor, host: Host) -> None:
    """Whatever form it gives the right code, a signature or an instance, it is refused, and no try is counted (D11)."""
    page = visitor.context.new_page()
    with false_engine(lambda _: answer(200, b"<title>evil</title>", "Content-Type: text/html")) as (evil, _):
        page.goto(evil)
        with host.pairing() as terminal:
            code = terminal.code()
            bodies = [["/api/auth/pair/request/", {"code": guess}] for guess in (code, *("00000000",) * 6)]
            bodies += [["/api/auth/verify/", {"nonce": "n", "signature": "s"}]]
            bodies += [["/api/platform/singularity/instance/", {"image": "x.sif"}]]
            page.evaluate(FOREIGN_POSTS, [host.url.rstrip("/"), bodies])
            posts = [request for request in visitor.requests if request.method in ("POST", "OPTIONS")]
            assert len(posts) >= 3 * len(bodies)
            answers = [reply for request in posts if (reply := request.response()) is not None]
            assert len(answers) >= 2 * len(bodies)
            assert all(400 <= reply.status < 500 for reply in answers)
            assert not any(name.startswith("access-control") for reply in answers for name in reply.headers)
            visitor.faults.clear()  # Chromium's own words on the preflights that failed
            visitor.pair(terminal)


def challenges(own: str, real: str) -> dict[str, object]:
    """What a false engine at `own` may hand out, and a word of the reason it should get instead of a signature."""
    return {
        f"the challenge is for {real}, and {own} was dialled": nonce(real, BASELINE),
        "the challenge is for 127.0.0.1:1,": nonce("127.0.0.1:1", BASELINE),
        "the challenge is for another key": nonce(own, "SHA256:other"),
        f"{own} sent is not an engine's challenge": None,
        "sent is not an engine's challenge": "",
        "is not an engine's challenge": "eyJhbGciOiJIUzI1NiJ9.e30",
        "not an engine's challenge": " " * 64 + "TLS 1.3, server CertificateVerify\0",
        "an engine's challenge": "SSHSIG\0\0\0\4file",
        "engine's challenge": nonce(own, BASELINE).replace("v1.", "v2."),
    }


def test_a_false_engine_gets_no_signature(visitor: Visitor, host: Host) -> None:
    """A relayed or foreign challenge is not signed, the page says why, and nothing is sent after it (D12)."""
    given: object = ""

    def reply(request: bytes) -> bytes:
        path = request.split(b" ")[1].decode()
        if "/challenge/" in path:
            body = {"identity": BASELINE, "nonce": given, "lifetime": "1m0s"}
            return answer(200, json.dumps(body).encode(), "Content-Type: application/json")
        real = engine.get(path)
        return answer(real.status_code, real.content, f"Content-Type: {real.headers['content-type']}")

    with httpx.Client(base_url=host.url) as engine, false_engine(reply) as (url, requests):
        page = visitor.open(base=url + "/")
        page.set_input_files("#key-file", KEYS / "rsa2048.pkcs8.pem")
        cases = challenges(url.removeprefix("http://"), f"127.0.0.1:{host.port}")
        for reason, given in cases.items():  # noqa: B007 - `reply` reads it
            page.click("#key-submit")
            expect(page.locator("#key-refusal")).to_contain_text(reason)
            expect(page.locator("#key-refusal")).to_contain_text("refused to sign")
            expect(page.locator("#key-submit")).to_have_text("Sign in")
        page.close()
    assert len([request for request in requests if b"/challenge/" in request]) == len(cases)
    assert not [request for request in requests if request.startswith(b"POST")]


def test_without_a_secure_context_the_key_method_is_hidden_with_the_ways_out(visitor: Visitor, host: Host) -> None:
    """On http and a LAN name the page asks for no key and says why; pairing works, and no script fails (D38)."""
    lan = f"http://engine.lan:{host.port}/"
    page = visitor.open(base=lan)
    assert page.evaluate("[isSecureContext, typeof crypto.subtle, typeof navigator.locks]") == [
        False,
        *["undefined"] * 2,
    ]
    expect(page.locator("#pair-form")).to_be_visible()
    page.check("input[value=key]", force=True)
    expect(page.locator("#key-form")).to_be_hidden()
    expect(page.locator("#insecure")).to_contain_text("https")
    expect(page.locator("#insecure-tunnel")).to_have_text(f"ssh -L {host.port}:127.0.0.1:{host.port} engine.lan")
    with host.pairing() as terminal:
        visitor.pair(terminal, page)
    other = visitor.open(base=lan)
    expect(other.locator("#view-home")).to_be_visible()
    page.click("#logout")
    expect(other.locator("#view-signin")).to_be_visible()
    visitor.faults[:] = [fault for fault in visitor.faults if "Cross-Origin-Opener-Policy" not in fault]


@pytest.mark.vectors
def test_every_text_is_only_text(visitor: Visitor, host: Host) -> None:
    """Markup in an address, an identity or an instance is shown as it is, and no element comes of it (D39)."""
    strings = ["<img src=x onerror=window.pwned=1>", "<script>window.pwned=1</script>", "javascript:window.pwned=1"]
    strings += json.loads((vectors() / "blns" / "blns.json").read_text())
    texts = [text for text in strings if text.strip()]
    sessions = [
        {
            "session": f"s{place}",
            "identity": text,
            "method": text,
            "permissions": [text],
            "started_at": 1,
            "expires_at": 2,
            "address": text,
            "current": False,
        }
        for place, text in enumerate(texts)
    ]
    instances = [{"identity": text, "state": text, "img": text, "pid": 1, "ip": text} for text in dict.fromkeys(texts)]
    serve(visitor, "**/api/auth/sessions/", {"sessions": sessions})
    serve(visitor, "**/api/platform/singularity/instance/", {"instances": instances})
    page = visitor.sign_in()
    rows = page.locator("#sessions-list > li")
    expect(rows).to_have_count(len(texts))
    expect(page.locator("#instances-list > li")).to_have_count(len(instances))
    shown = page.evaluate("[...document.querySelectorAll('#sessions-list .row-title')].map((p) => p.textContent)")
    assert shown == texts
    allowed = "#sessions-list :not(li, div, p, span, button), #instances-list :not(li, div, p, span, strong, button)"
    assert page.locator(allowed).count() == 0
    assert page.evaluate("window.pwned") is None
    page.locator("#sessions-list button").first.click()
    assert page.locator("#confirm :not(h2, p, div, button)").count() == 0


def serve(visitor: Visitor, pattern: str, value: object) -> None:
    """An answer that no honest engine gives."""

    def fulfil(route: Route) -> None:
        route.fulfill(json=value)

    visitor.context.route(pattern, fulfil)


def test_a_code_of_markup_is_only_a_code(visitor: Visitor) -> None:
    """`#pair=<img onerror>` stands in the field as text and is never sent (B4)."""
    page = visitor.open("#pair=<img src=x onerror=window.pwned=1>")
    expect(page.locator("#code")).to_have_value("<img src=x onerror=window.pwned=1>")
    page.click("#pair-submit")
    expect(page.locator("#code-error")).to_contain_text("has 8 letters and digits")
    assert page.evaluate("window.pwned") is None
    assert not visitor.asked("/api/auth/pair/")


def test_a_planted_script_is_blocked_by_the_policy(visitor: Visitor) -> None:
    """Markup strings throw; inline scripts, handlers and foreign pictures do nothing (D39)."""
    page = visitor.open()
    for plant in (
        "document.body.innerHTML = '<img src=x onerror=window.pwned=1>'",
        "document.createElement('script').text = 'window.pwned=1'",
        "document.createElement('script').src = 'data:text/javascript,window.pwned=1'",
        "document.body.setAttribute('onclick', 'window.pwned=1')",
    ):
        assert (
            page.evaluate(f"() => {{ try {{ {plant}; return 'done' }} catch (error) {{ return error.name }} }}")
            == "TypeError"
        )
    page.evaluate("location.href = 'javascript:window.pwned=1'")
    page.evaluate("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))")
    for _ in range(100):  # they are told some time after
        page.wait_for_timeout(100)
        if len(visitor.faults) >= 6:
            break
    assert page.evaluate("window.pwned") is None
    assert not [request for request in visitor.asked(":9/") if request.failure is None]
    assert len(visitor.faults) == 6
    assert all("Content Security Policy" in fault or "requires 'Trusted" in fault for fault in visitor.faults)
    visitor.faults.clear()  # the policy's own reports
