"""A small client, and its suite of 40 lines: `python client.py LINE`, the line that `hatchway test-engine` printed."""

import json
import sys
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15


class Client:
    def __init__(self, address, key_file, now, sleep):
        self.http, self.now, self.sleep = httpx.Client(base_url=address), now, sleep
        self.key = serialization.load_pem_private_key(Path(key_file).read_bytes(), None)

    def sign_in(self):
        nonce = self.http.get("/api/auth/challenge/").json()["nonce"]
        signature = b64encode(self.key.sign(nonce.encode(), PKCS1v15(), hashes.SHA256())).decode()
        body = {"nonce": nonce, "signature": signature, "lifetime": "10m"}
        self.take(self.http.post("/api/auth/verify/", json=body).raise_for_status().json())

    def take(self, session):
        self.token, self.ends = session["token"], session["expires_at"]

    def get(self, path):
        if 0 < self.ends - self.now() < 300:
            self.take(self.ask("POST", "/api/auth/renew/").json())
        return self.ask("GET", path).raise_for_status().json()

    def ask(self, method, path):
        answer = self.http.request(method, path, headers={"Authorization": f"Bearer {self.token}"})
        if answer.status_code == 503:
            self.sleep(int(answer.headers["Retry-After"]))
        elif answer.status_code == 401:
            self.sign_in()
        return self.ask(method, path) if answer.status_code in (503, 401) else answer

    def pair(self, code):
        return json.loads(self.http.post("/api/auth/pair/request/", json={"code": code}).text.splitlines()[-1])


told = json.loads(sys.argv[1])
control = httpx.Client(base_url=told["control_address"])


def tell(path, **fields):
    return control.post(path, json=fields).raise_for_status().json()


def advance(seconds):
    tell("/clock/advance", seconds=seconds)


def sign_in():
    client.sign_in()
    assert client.get("/api/auth/inspect/")["valid"]


def renewal():
    before, _ = client.token, advance(301)
    assert client.get("/api/auth/inspect/")["expires_at"] == client.ends
    assert client.token != before
    assert control.get("/records").json()[-1]["event"] == "renew"


def expiry():
    before, _ = client.token, advance(601)
    assert client.http.get("/api/auth/inspect/", headers={"Authorization": f"Bearer {before}"}).status_code == 401
    assert client.get("/api/auth/inspect/")["valid"]
    assert client.token != before


def windows():
    late, _ = tell("/pairings")["code"], advance(30)
    assert client.pair(late)["detail"] == "invalid pairing code"
    with ThreadPoolExecutor() as beside:
        held = beside.submit(client.pair, tell("/pairings", answer="late")["code"])
        while "claimed" not in [record["target"] for record in control.get("/records").json()]:
            pass
        advance(30)
    assert held.result()["detail"] == "pairing expired on approval"
    assert "token" in client.pair(tell("/pairings")["code"])


def revoke():
    tell("/sessions/revoke")
    assert client.get("/api/auth/inspect/")["valid"]


def unavailable():
    tell("/faults", unavailable=True, times=1)
    assert client.get("/api/auth/inspect/")["valid"]


client = Client(told["address"], told["key_file"], lambda: control.get("/clock").json()["now"], advance)
for test in (sign_in, renewal, expiry, windows, revoke, unavailable):
    print(test.__name__, flush=True)
    test()
print("passed")
