# SPDX-License-Identifier: BSD-3-Clause
"""etcd by its HTTP gateway. Requests and answers are made and read in pure functions; what answers say is not trusted."""
import base64
import binascii
import collections
import http.client
import json
import re
import ssl
import urllib.parse

ANSWER_MAX = 1 << 20
Entry = collections.namedtuple("Entry", "key value mod_revision lease create_revision")


class EtcdError(Exception):
    """Why there is no answer that can be used."""


class OtherLeader(EtcdError):
    """A lease was prolonged by one that may not be the leader any more."""


def encode(data):
    return base64.b64encode(data.encode()).decode()


def decode_text(value, what):
    try:
        return base64.b64decode(value, validate=True).decode()
    except (TypeError, ValueError, binascii.Error):
        raise EtcdError(f"{what} is not text in base64") from None


def decode_number(answer, name, default=None):
    """etcd writes 64-bit numbers as strings, and leaves out zeroes."""
    value = answer.get(name, default)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value, re.ASCII):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 64:
        raise EtcdError(f"{name} is {str(value)[:40]!r}, and no number")
    return value


def decode_answer(status, data):
    """The object of an answer."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if status != 200:
        error = answer.get("error") if isinstance(answer, dict) else None
        raise EtcdError(f"HTTP {status}: {str(error if error is not None else data[:80])[:200]}")
    if not isinstance(answer, dict):
        raise EtcdError(f"the answer is no JSON object: {data[:80]!r}")
    return answer


def decode_range(answer, prefix):
    """The entries of an answer to a range request; keys without the prefix are none of ours."""
    kvs = answer.get("kvs", [])
    if not isinstance(kvs, list):
        raise EtcdError("kvs is no list")
    if answer.get("more"):
        raise EtcdError("the answer has only a part of the keys")
    entries = []
    for kv in kvs:
        if not isinstance(kv, dict):
            raise EtcdError("a kv is no object")
        key = decode_text(kv.get("key", ""), "a key")
        if not key.startswith(prefix):
            raise EtcdError(f"key {key[:80]!r} was not asked for")
        entries.append(Entry(key[len(prefix):], decode_text(kv.get("value", ""), f"the value of {key[:80]!r}"), decode_number(kv, "mod_revision"),
                             decode_number(kv, "lease", 0), decode_number(kv, "create_revision", 0)))
    return entries


def decode_term(answer):
    """The term of the leader that the member knew when it began to answer: each election has another."""
    header = answer.get("header")
    return decode_number(header, "raft_term") if isinstance(header, dict) else decode_number({}, "raft_term")


def range_request(prefix):
    last = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return {"key": encode(prefix), "range_end": encode(last)}


def watch_request(prefix):
    return {"create_request": range_request(prefix)}


def decode_watch(line):
    """One line of the answer to a watch: it says that something has changed, or that the watch has begun. What has changed is read anew, not taken from here."""
    answer = decode_answer(200, line)
    result = answer.get("result")
    if not isinstance(result, dict) or result.get("canceled"):
        raise EtcdError(f"the watch was ended: {str(answer)[:200]}")


def change_request(key, revision, value, lease=0, absent=None):
    """Sets a key, or with value None deletes it, if its mod_revision is still that (0: if there is no such key), and if there is no key `absent`."""
    change = {"request_delete_range": {"key": encode(key)}} if value is None else {
        "request_put": {"key": encode(key), "value": encode(value), **({"lease": str(lease)} if lease else {})}}
    compare = [{"key": encode(k), "target": "MOD", "result": "EQUAL", "mod_revision": str(r)} for k, r in ((key, revision), (absent, 0)) if k is not None]
    return {"compare": compare, "success": [change]}


def tls_context(settings):
    for name in ("ca", "cert", "key"):
        if name in settings:
            try:
                with open(settings[name], "rb"):
                    pass
            except (OSError, ValueError) as e:
                raise EtcdError(f"etcd.{name}: {settings[name]!r}: {getattr(e, 'strerror', None) or e}") from None
    what = f"etcd.ca: {settings.get('ca')!r}"
    try:
        tls = ssl.create_default_context(cafile=settings.get("ca"))
        if "cert" in settings:
            what = f"etcd.cert, etcd.key: {settings['cert']!r}, {settings.get('key')!r}"
            tls.load_cert_chain(settings["cert"], settings.get("key"))
        return tls
    except (OSError, ValueError) as e:
        raise EtcdError(f"{what}: {e}") from None


class Etcd:
    """One member after the other is asked, until one answers. To be used by one thread."""

    def __init__(self, settings, timeout_s):
        self.endpoints = [urllib.parse.urlsplit(e) for e in settings["endpoints"]]
        self.timeout_s = timeout_s
        self.tls = tls_context(settings) if any(e.scheme == "https" for e in self.endpoints) else None

    def connection(self, endpoint):
        kind = http.client.HTTPSConnection if endpoint.scheme == "https" else http.client.HTTPConnection
        more = {"context": self.tls} if endpoint.scheme == "https" else {}
        return kind(endpoint.hostname, endpoint.port or 2379, timeout=self.timeout_s / len(self.endpoints), **more)

    def ask(self, endpoint, path, body):
        connection = self.connection(endpoint)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read(ANSWER_MAX + 1)
            if len(data) > ANSWER_MAX:
                raise EtcdError(f"the answer is longer than {ANSWER_MAX} bytes")
            return decode_answer(response.status, data)
        finally:
            connection.close()

    def call(self, path, request):
        why = []
        for _ in self.endpoints:
            endpoint = self.endpoints[0]
            try:
                return self.ask(endpoint, path, json.dumps(request))
            except (EtcdError, OSError, http.client.HTTPException, ValueError) as e:
                why.append(f"{endpoint.netloc}: {str(e) or type(e).__name__}")
                self.endpoints.append(self.endpoints.pop(0))     # the next call begins with another one
        raise EtcdError("; ".join(why))

    def watch(self, prefix, idle_s):
        """Yields when the watch of the keys has begun, and after each change. Returns when nothing has come for so long. EtcdError: no member gives it, or it
        was ended. The next one is asked of another member in each case: one that is cut off from the others may say nothing, too."""
        why, begun = [], False
        for _ in list(self.endpoints):
            endpoint, connection = self.endpoints[0], None
            try:
                connection = self.connection(endpoint)
                for _ in self.watch_lines(connection, prefix, idle_s):
                    begun = True
                    yield
            except (EtcdError, OSError, http.client.HTTPException, ValueError) as e:
                self.endpoints.append(self.endpoints.pop(0))
                if begun and isinstance(e, TimeoutError):
                    return
                why.append(f"{endpoint.netloc}: {str(e) or type(e).__name__}")
                if begun:
                    break
            finally:
                if connection is not None:
                    connection.close()
        raise EtcdError("; ".join(why))

    @staticmethod
    def watch_lines(connection, prefix, idle_s):
        """Until the watch ends, which is an exception. etcd ends it when that member has lost the leader (the field hasleader)."""
        connection.connect()
        sock = connection.sock      # which the response may take over
        connection.request("POST", "/v3/watch", json.dumps(watch_request(prefix)),
                           {"Content-Type": "application/json", "Grpc-Metadata-hasleader": "true"})
        with connection.getresponse() as response:
            if response.status != 200:
                decode_answer(response.status, response.read(ANSWER_MAX))
            while True:
                decode_watch(response.readline(ANSWER_MAX))
                yield
                sock.settimeout(idle_s)

    def entries(self, prefix):
        return decode_range(self.call("/v3/kv/range", range_request(prefix)), prefix)

    def change(self, key, revision, value, lease=0, absent=None):
        """Whether it was done: somebody else may have changed the key."""
        return self.call("/v3/kv/txn", change_request(key, revision, value, lease, absent)).get("succeeded") is True

    def grant(self, ttl_s):
        answer = self.call("/v3/lease/grant", {"TTL": str(ttl_s)})
        return decode_number(answer, "ID"), decode_number(answer, "TTL")

    def keep_alive(self, lease):
        """The seconds that it has now; 0: it has ended. A leader that does not know yet that another one has been elected answers as before, and the lease
        may end earlier than it says: the new leader counts for itself. The term in the answer is that which the member knew before it prolonged the lease, or
        passed the request on to its leader. So a read, which a majority confirms, must find the same afterwards; OtherLeader: it does not."""
        answer = self.call("/v3/lease/keepalive", {"ID": str(lease)})
        result = answer.get("result")
        if not isinstance(result, dict) or decode_number(result, "ID") != lease:
            raise EtcdError(f"an answer to another request: {str(answer)[:200]}")
        ttl_s = decode_number(result, "TTL", 0)
        if ttl_s > 0:
            term, present = decode_term(result), self.read_term()
            if term != present:
                raise OtherLeader(f"etcd has prolonged the lease in term {term}, and is in term {present}: it may have elected another leader meanwhile")
        return ttl_s

    def read_term(self):
        """That of the present leader: a read of a key, which a majority confirms."""
        return decode_term(self.call("/v3/kv/range", {"key": encode("/varve"), "count_only": True}))

    def left(self, lease):
        """The whole seconds that a lease has, 0 or less: it has ended; and those that it has when it is prolonged, 0: it is not there any more."""
        answer = self.call("/v3/lease/timetolive", {"ID": str(lease)})
        return decode_number(answer, "TTL", 0), decode_number(answer, "grantedTTL", 0)

    def revoke(self, lease):
        self.call("/v3/lease/revoke", {"ID": str(lease)})
