# mypy: ignore-errors
"""Challenge and verify by hand on FastAPI, sessions in memory, tokens by PyJWT: what one writes without Hatchway.

python fastapi_by_hand.py PORT ALGORITHM PUBLIC_KEY_FILE
"""

import secrets
import sys
import time
from base64 import b64decode

import jwt
import uvicorn
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel

PORT, ALGORITHM, KEY_FILE = int(sys.argv[1]), sys.argv[2], sys.argv[3]
SIGNING = secrets.token_bytes(32) if ALGORITHM == "HS256" else Ed25519PrivateKey.generate()
VERIFYING = SIGNING if isinstance(SIGNING, bytes) else SIGNING.public_key()
with open(KEY_FILE, "rb") as file:
    KEY = load_pem_public_key(file.read())

nonces: dict[str, float] = {}
sessions: dict[str, float] = {}
app = FastAPI()


class Verify(BaseModel):
    nonce: str
    signature: str
    lifetime: str | None = None


@app.get("/api/auth/challenge/")
async def challenge() -> dict:
    nonce = secrets.token_urlsafe(32)
    nonces[nonce] = time.time() + 60
    return {"identity": "any", "nonce": nonce, "lifetime": "1m0s"}


@app.post("/api/auth/verify/")
async def verify(body: Verify) -> dict:
    if nonces.pop(body.nonce, 0) < time.time():
        raise HTTPException(401)
    try:
        KEY.verify(b64decode(body.signature), body.nonce.encode(), PKCS1v15(), SHA256())
    except InvalidSignature:
        raise HTTPException(401) from None
    sid, exp = secrets.token_urlsafe(12), int(time.time()) + 3600
    sessions[sid] = exp
    token = jwt.encode({"sid": sid, "exp": exp, "permissions": ["SHELL"]}, SIGNING, ALGORITHM)
    return {"token": token, "permissions": ["SHELL"], "expires_at": exp}


@app.get("/api/auth/inspect/")
async def inspect(authorization: str = Header()) -> dict:
    try:
        payload = jwt.decode(authorization.removeprefix("Bearer "), VERIFYING, [ALGORITHM])
    except jwt.PyJWTError:
        raise HTTPException(401) from None
    if payload["sid"] not in sessions:
        raise HTTPException(401)
    return {"valid": True, "permissions": payload["permissions"], "expires_at": payload["exp"]}


uvicorn.run(app, port=PORT, log_level="critical", access_log=False, backlog=4096)
