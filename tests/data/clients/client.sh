#!/bin/bash
# A small client, and its suite of 40 lines: `bash client.sh LINE`, the line that `hatchway test-engine` printed.
set -euo pipefail

# A field's value in flat JSON, without a process of its own for each.
field() { [[ $2 =~ \"$1\":\ ?\"?([^\",}]*) ]] && printf %s "${BASH_REMATCH[1]}"; }
address=$(field address "$1") control_address=$(field control_address "$1") key_file=$(field key_file "$1")

sign_in() {
  local nonce signature
  nonce=$(field nonce "$(curl -sf "$address/api/auth/challenge/")")
  signature=$(printf %s "$nonce" | openssl dgst -sha256 -sign "$key_file" | base64 -w0)
  take "$(curl -sf --json "{\"nonce\": \"$nonce\", \"signature\": \"$signature\", \"lifetime\": \"10m\"}" "$address/api/auth/verify/")"
}
take() { token=$(field token "$1") ends=$(field expires_at "$1"); }
get() {
  local left=$((ends - $(now)))
  if ((left > 0 && left < 300)); then ask -X POST /api/auth/renew/; take "$answer"; fi
  ask "$1"
}
ask() { # the last argument is the path; the body is left in $answer
  local options=("${@:1:$#-1}") path=${!#}
  answer=$(curl -s -w '\n%{http_code} %header{retry-after}' -H "Authorization: Bearer $token" "${options[@]}" "$address$path")
  local status=${answer##*$'\n'}
  answer=${answer%$'\n'*}
  case ${status%% *} in
    503) pause "${status#* }"; ask "$@" ;;
    401) sign_in; ask "$@" ;;
    2*) ;;
    *) return 1 ;;
  esac
}
pair() {
  local lines
  lines=$(curl -s -H "Accept: application/x-ndjson" --json "{\"code\": \"$1\"}" "$address/api/auth/pair/request/")
  printf %s "${lines##*$'\n'}"
}

tell() { curl -sf --json "${2:-{\}}" "$control_address$1"; }
advance() { tell /clock/advance "{\"seconds\": $1}" > /dev/null; }
pause() { advance "$1"; }
now() { local clock; clock=$(field now "$(curl -sf "$control_address/clock")"); printf %s "${clock%.*}"; }
code() { field code "$(tell /pairings "${1:-}")"; }
same() { [[ "$1" == "$2" ]] || { echo "not the same: $1, $2" >&2; exit 1; }; }
valid() { get /api/auth/inspect/ && same "$(field valid "$answer")" true; }

echo sign_in
sign_in
valid

echo renewal
before=$token
advance 301
valid
same "$(field expires_at "$answer")" "$ends"
[[ $token != "$before" ]]
records=$(curl -sf "$control_address/records")
[[ ${records##*'"event":'} == '"renew"'* ]]

echo expiry
before=$token
advance 601
same "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $before" "$address/api/auth/inspect/")" 401
valid
[[ $token != "$before" ]]

echo windows
late=$(code)
advance 30
same "$(field detail "$(pair "$late")")" "invalid pairing code"
exec {held}< <(pair "$(code '{"answer": "late"}')")
until [[ $(curl -sf "$control_address/records") == *'"target":"claimed"'* ]]; do :; done
advance 30
same "$(field detail "$(cat <&"$held")")" "pairing expired on approval"
[[ $(pair "$(code)") == *'"token":'* ]]

echo revoke
tell /sessions/revoke > /dev/null
valid

echo unavailable
tell /faults '{"unavailable": true, "times": 1}' > /dev/null
valid
echo passed
