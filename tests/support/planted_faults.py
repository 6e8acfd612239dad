"""Faults that break a promise of the handbook's chapter on security or a case of tests/data/cases.md, and for each the
test that must notice.

A test that a claim names holds the claim only if it fails without it.
"""

from __future__ import annotations

from typing import NamedTuple


class PlantedFault(NamedTuple):
    """`old` stands once in `file`; with `new` in its place what `promise` names is broken, and `test`
    (`file::function`) fails.

    `promise` is how a promise begins, or a case's number. With `processes`, the test starts programs that must have
    the fault too.
    """

    promise: str
    file: str
    old: str
    new: str
    test: str
    processes: bool = False


SIGN_IN = "engine/sessions/key_sign_in.py"

FAULTS = (
    PlantedFault(
        "A challenge works once",
        SIGN_IN,
        "once=once,",
        "once=None,",
        "test_sign_in::test_a_nonce_works_once_and_a_wrong_signature_does_not_burn_it",
    ),
    PlantedFault(
        "A challenge works once",
        "engine/access/challenges.py",
        "if not -self._slack <= age <= LIFETIME:",
        "if not -self._slack <= age <= LIFETIME + 1:",
        "test_challenges::test_a_nonce_lasts_its_minute",
    ),
    PlantedFault(
        "A challenge works once",
        "engine/access/signers.py",
        "if named is None or named == challenge.identity:\n        return challenge.identity",
        "if named is None or named == challenge.identity:\n        return ANY",
        "test_sign_in::test_a_challenge_belongs_to_its_identity",
    ),
    PlantedFault(
        "One answer for every bad signature",
        "engine/base/errors.py",
        'words = detail or "the signature does not verify with a registered key and a fresh challenge"',
        'words = detail or f"the signature does not verify: {cause}"',
        "test_sign_in::test_one_answer_for_every_bad_signature",
    ),
    PlantedFault(
        "A code signs in at most once",
        "statecharts/pairing.py",
        '("confirm_claim", "ask_operator")',
        '("confirm_claim", "ask_operator", "sign_in")',
        "test_pairings::test_rejected",
    ),
    PlantedFault(
        "A code signs in at most once",
        "engine/pairings/pairings.py",
        '"approve" if approved else "reject"',
        '"approve"',
        "test_pairings::test_rejected",
    ),
    PlantedFault(
        "A logout, a revocation",
        "statecharts/session.py",
        'T("active", "logout",           always,                "ended", ',
        'T("active", "logout",           always,                "active", ',
        "test_sessions::test_logout_ends_every_token",
    ),
    PlantedFault(
        "A logout, a revocation",
        "engine/sessions/sessions.py",
        'else "key_unregistered"\n',
        "else None\n",
        "test_sessions::test_an_unregistered_key_ends_its_sessions_for_good",
    ),
    PlantedFault(
        "A logout, a revocation",
        "engine/sessions/sessions.py",
        "            await self._runtime.catch_up(actor)\n",
        "",
        "test_sessions::test_a_clock_set_back_revives_nothing",
    ),
    PlantedFault(
        "The same at every worker process",
        "api/workers/backend.py",
        "and self._counters.is_current(cached.snapshot, self._clock.elapsed())",
        "and self._counters",
        "test_response_cache::test_a_step_a_reload_and_a_key_end_what_is_kept",
    ),
    PlantedFault(
        "The same at every worker process",
        "engine/sessions/versions.py",
        "and elapsed < self._times[_FRESH]",
        "",
        "test_versions::test_nothing_is_kept_past_what_the_engine_has_heard",
    ),
    PlantedFault(
        "The same at every engine of a fleet",
        "engine/store/scripts.py",
        "  if redis.call('EXISTS', KEYS[5]) == 1 then return 'USED' end\n",
        "",
        "test_fleet::test_a_nonce_is_used_once_anywhere",
        processes=True,
    ),
    PlantedFault(
        "What a full disk can't take",
        "engine/base/files.py",
        "        _put(path, data, overwrite)\n",
        "        path.write_bytes(data)\n",
        "test_full_disk::test_keys_settings_and_sessions",
        processes=True,
    ),
    PlantedFault(
        "Nothing a stranger sends reaches the operator's terminal",
        "engine/pairings/claims.py",
        "if 0x20 <= byte <= 0x7E and",
        "if 0x20 <= byte <= 0x7F and",
        "test_pairings::test_agents_are_harmless",
    ),
    PlantedFault(
        "How long an answer takes",
        "engine/access/signers.py",
        "    if entry is None or not fits or not entry.key.may_have_made(signed.signature):\n",
        "    if entry is not None and not fits:\n",
        "test_signers::test_an_unknown_identity_is_nobody_s_and_costs_as_much",
    ),
    PlantedFault(
        "A flood from an address",
        SIGN_IN,
        "            self._limit_wrong_answers(challenge, answer, origin)\n",
        "",
        "test_sign_in::test_past_the_limit_nothing_is_checked",
    ),
    PlantedFault(
        "A flood from an address",
        "api/server/places.py",
        "        if self._taken < places:\n            return True\n",
        "        if self._taken <= places:\n            return self._taken < places\n",
        "test_places::test_idle_connections_keep_nobody_out",
    ),
    PlantedFault(
        "Weak keys are refused",
        "engine/keys/weak_keys.py",
        "if not (e % 2 and 65537 <= e < 2**32):",
        "if not (e % 2 and 3 <= e < 2**32):",
        "test_keys::test_the_exponent_keeps_its_bounds",
    ),
    PlantedFault(
        "What an engine or a file says",
        "engine/base/text.py",
        'return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)',
        "return text",
        "test_foreign_words::test_a_line_is_one_line",
    ),
    PlantedFault(
        "Nothing is sent to a port of loopback",
        "api/client/own_engine.py",
        "    if not told:\n",
        "    if not told:\n        return\n    if not told:\n",
        "test_own_engine::test_while_the_engine_is_down_its_port_gets_nothing",
        processes=True,
    ),
    PlantedFault(
        "An engine that is vouched for by less",
        "api/cli/pins.py",
        "    if expected is None and before is not None and not _follows(before, shown):\n",
        "    if expected is None and before != AUTHORITY and before is not None and not _follows(before, shown):\n",
        "test_pins::test_after_an_authoritys_word_less_is_a_change",
    ),
    PlantedFault(
        "Foreign hosts, foreign pages, odd bodies",
        "api/http/bodies.py",
        "    except (UnicodeError, json.JSONDecodeError, RecursionError, ValueError):\n",
        "    except json.JSONDecodeError:\n",
        "test_bodies::test_what_is_no_object",
    ),
    PlantedFault(
        "Instances see nothing of the engine",
        "engine/instances/apptainer/calls.py",
        '    env = {"PATH": PATH, "HOME": user.pw_dir}\n',
        '    env = {**os.environ, "PATH": PATH, "HOME": user.pw_dir}\n',
        "test_apptainer::test_what_the_engines_environment_does",
        processes=True,
    ),
    PlantedFault(
        "No volume reaches what is the engine's own",
        "engine/instances/own_paths.py",
        "            yield here\n            left.extend",
        "            left.extend",
        "test_own_paths::test_a_link_that_leads_to_what_is_ours",
    ),
    PlantedFault(
        "No volume reaches what is the engine's own",
        "engine/instances/volumes.py",
        "        if overlap(Path(one.destination), Path(other.destination)):\n",
        "        if one.destination == other.destination:\n",
        "test_confinement::test_no_destination_inside_another",
    ),
    PlantedFault(
        "In a fleet a name is taken once",
        "engine/store/scripts.py",
        "    if known and (live == '1' or ARGV[5] == '0') then return string.match(known, '|(.*)$') end\n",
        "",
        "test_roster::test_a_name_is_taken_once",
    ),
    PlantedFault(
        "D14",
        "engine/access/tokens.py",
        "    iat: int\n",
        "    iat: int | str\n",
        "test_tokens::test_every_claim_has_its_type",
    ),
    PlantedFault(
        "D15",
        "engine/base/permissions.py",
        "if allows(held, name) and allows(to, name))",
        "if allows(held, name))",
        "test_sessions::test_narrowed_at_once_and_never_widened",
    ),
    PlantedFault(
        "D19",
        "engine/base/permissions.py",
        "        if name not in _KNOWN and not (master and name == MASTER):\n",
        "        if name and name not in _KNOWN and not (master and name == MASTER):\n",
        "test_permissions::test_a_malformed_list_is_refused_and_the_names_are_listed",
    ),
    PlantedFault(
        "D20",
        "engine/sessions/sessions.py",
        "min(int(facts.renewed_at or now) + facts.lifetime, int(facts.latest))",
        "int(facts.renewed_at or now) + facts.lifetime",
        "test_sessions::test_renewal_keeps_a_session_to_its_age",
    ),
    PlantedFault(
        "D21",
        "engine/base/durations.py",
        "    if SHORTEST_LIFETIME <= seconds <= LONGEST_LIFETIME:\n",
        "    if SHORTEST_LIFETIME <= seconds < LONGEST_LIFETIME:\n",
        "test_durations::test_each_case_of_the_corpus_gets_an_answer_it_allows",
    ),
    PlantedFault(
        "D23",
        "engine/pairings/pairings.py",
        "await self._wrong.take(address)",
        "pass",
        "test_pairings::test_five_wrong_codes_a_minute",
    ),
    PlantedFault(
        "D24",
        "engine/pairings/codes.py",
        'unicodedata.normalize("NFKC", text)',
        "text",
        "test_pairings::test_codes_as_people_type_them",
    ),
    PlantedFault(
        "D25",
        "engine/runtime/actors.py",
        "timing.now() < actor.deadline:",
        "timing.now() <= actor.deadline + 0.1:",
        "test_pairings::test_the_decision_window",
    ),
    PlantedFault(
        "D28",
        "api/http/proxies.py",
        "return bool(trusted) and _is_trusted(",
        "return not trusted or _is_trusted(",
        "test_addresses::test_nobody_is_believed_by_default",
    ),
    PlantedFault(
        "D30",
        "engine/instances/confinement.py",
        "[A-Za-z0-9][A-Za-z0-9_.-]{0,62}",
        "[A-Za-z0-9_.-]{1,63}",
        "test_confinement::test_the_corpus_of_bodies",
    ),
    PlantedFault(
        "E3",
        "engine/instances/volumes.py",
        '    if mode == "rw" and policy.holds_images(Path(found)):\n',
        '    if mode == "rw" and False:\n',
        "test_own_paths::test_images_are_not_written_through_a_volume",
    ),
    PlantedFault(
        "E7",
        "api/client/own_engine.py",
        "return bool(led) and all(",
        "return bool(led) and any(",
        "test_own_engine::test_a_name_is_the_engines_where_all_its_addresses_are",
    ),
    PlantedFault(
        "E15",
        "engine/sessions/session_limit.py",
        "if self._unused_at(actor) <= now), None)",
        "if True), None)",
        "test_session_limit::test_sessions_in_use_stay",
    ),
    PlantedFault(
        "E18",
        "api/http/proxies.py",
        '    return str(getattr(known, "ipv4_mapped", None) or known)\n',
        "    return str(known)\n",
        "test_addresses::test_an_ipv4_address_in_the_form_of_ipv6",
    ),
    PlantedFault(
        "E34",
        "engine/settings/sources.py",
        "        if text.strip() and not _LINK.match(text):\n",
        "        if text.strip():\n",
        "test_settings::test_variables_of_others_set_nothing",
    ),
    PlantedFault(
        "E36",
        "engine/base/files.py",
        "        if ours.fullmatch(name):\n",
        "        if name.endswith(LEFTOVER):\n",
        "test_files::test_leftovers_of_killed_writers_are_cleared",
    ),
)
