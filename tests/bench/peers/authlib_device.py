# mypy: ignore-errors
"""Authlib's device flow and introspection on Flask, everything in memory. gunicorn's `app`."""

import time

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin
from authlib.oauth2.rfc7662 import IntrospectionEndpoint
from authlib.oauth2.rfc8628 import DEVICE_CODE_GRANT_TYPE, DeviceAuthorizationEndpoint, DeviceCodeGrant
from flask import Flask, request


class Client(ClientMixin):
    def get_client_id(self):
        return "bench"

    def get_default_redirect_uri(self):
        return None

    def get_allowed_scope(self, scope):
        return scope or ""

    def check_redirect_uri(self, redirect_uri):
        return False

    def check_client_secret(self, client_secret):
        return True

    def check_endpoint_auth_method(self, method, endpoint):
        return True

    def check_response_type(self, response_type):
        return False

    def check_grant_type(self, grant_type):
        return grant_type == DEVICE_CODE_GRANT_TYPE


class Credential(dict):
    def get_client_id(self):
        return "bench"

    def get_scope(self):
        return "profile"

    def get_user_code(self):
        return self["user_code"]

    def is_expired(self):
        return self["until"] < time.time()


class Token(dict):
    def is_expired(self):
        return self["until"] < time.time()

    def is_revoked(self):
        return False


CLIENT = Client()
devices, by_user_code, approved, tokens = {}, {}, {}, {}
app = Flask(__name__)
app.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = False


def save_token(token, oauth_request):
    tokens[token["access_token"]] = Token(token, until=time.time() + token["expires_in"])


server = AuthorizationServer(app, query_client=lambda client_id: CLIENT, save_token=save_token)


class Device(DeviceAuthorizationEndpoint):
    CLIENT_AUTH_METHODS = ("none",)

    def get_verification_uri(self):
        return "http://127.0.0.1/device"

    def save_device_credential(self, client_id, scope, data):
        credential = Credential(data, until=time.time() + 600)
        devices[data["device_code"]] = by_user_code[data["user_code"]] = credential


class Grant(DeviceCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("none",)

    def query_device_credential(self, device_code):
        return devices.get(device_code)

    def query_user_grant(self, user_code):
        return ("user", True) if approved.pop(user_code, False) else None

    def should_slow_down(self, credential):
        return False


class Introspection(IntrospectionEndpoint):
    CLIENT_AUTH_METHODS = ("none",)

    def check_permission(self, token, client, request):
        return True

    def query_token(self, token_string, token_type_hint):
        return tokens.get(token_string)

    def introspect_token(self, token):
        return {"active": True, "client_id": "bench", "scope": token.get("scope", ""), "exp": int(token["until"])}


server.register_endpoint(Device)
server.register_endpoint(Introspection)
server.register_grant(Grant)


@app.post("/device")
def device():
    return server.create_endpoint_response(Device.ENDPOINT_NAME)


@app.post("/approve")
def approve():
    approved[request.form["user_code"]] = True
    return {"approved": True}


@app.post("/token")
def token():
    return server.create_token_response()


@app.post("/introspect")
def introspect():
    return server.create_endpoint_response(Introspection.ENDPOINT_NAME)
