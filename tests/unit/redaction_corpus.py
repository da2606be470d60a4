"""Texts that hold a secret, texts that only look like it, and texts built to be slow.

Every token is made up, and put together here from its parts, so that no scanner mistakes this file for a leak.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Secret:
    """`hidden` must be gone from the redacted text, `kept` must still stand in it."""

    text: str
    hidden: tuple[str, ...]
    kept: tuple[str, ...] = ()


def _token(prefix: str, length: int) -> str:
    alphabet = "q7Zx2Kp9Lm4Tn8Vb3Wc6Rd5Hf1Jg0Ys"
    return prefix + (alphabet * 4)[:length]


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _pem(kind: str, newline: str = "\n") -> str:
    body = newline.join(_token("MII", 61) for _ in range(6))
    return newline.join((f"-----BEGIN {kind}-----", body, f"-----END {kind}-----"))


JWT: Final = ".".join((_part({"alg": "HS256", "typ": "JWT"}), _part({"sub": "17"}), _token("", 43)))
BASIC: Final = base64.b64encode(b"deploy:not-a-password").decode()
PIECE: Final = _token("MII", 61)


def _hidden(text: str, *hidden: str, kept: tuple[str, ...] = ()) -> Secret:
    return Secret(text, hidden, kept)


_KEYS = """
    password passwd pwd pass passphrase secret token apikey api_key api-key apiKey access_key AccessKey
    private_key privateKey client_secret clientSecret authorization auth cookie session_id sessionId csrf otp cvv cvc
    card_number cardNumber ssn iban credential credentials signature salt dsn database_url databaseUrl connection_string
    webhook_url db_password DB_PASSWORD userPassword password_hash X-Api-Key x-csrf-token AWS_SECRET_ACCESS_KEY
    AWS_SESSION_TOKEN spring.datasource.password STRIPE_SECRET refresh_token accessToken PGPASSWORD password2
"""

KEY_SECRETS: Final = [
    _hidden(form.format(key=key), "zanzibar9", kept=("host.example",))
    for key, form in zip(
        _KEYS.split(),
        (
            "host.example refused {key}=zanzibar9",
            "host.example {{'{key}': 'zanzibar9', 'n': 1}}",
            'host.example {{"{key}": "zanzibar9", "n": 1}}',
            "host.example said {key}: zanzibar9",
            "https://host.example/v1?a=1&{key}=zanzibar9&b=2",
            'host.example {{\\"{key}\\": \\"zanzibar9\\"}}',
        )
        * 9,
        strict=False,
    )
]

URL_SECRETS: Final = [
    _hidden(
        "HTTPError: 402 from https://deploy:not-a-password@api.example.com/v1/charges?token=not-a-token",
        "deploy",
        "not-a-password",
        "not-a-token",
        kept=("HTTPError: 402", "https://", "api.example.com/v1/charges"),
    ),
    _hidden("postgresql://app:hunter2@db.internal:5432/app", "hunter2", kept=("db.internal:5432/app",)),
    _hidden(
        "postgresql+psycopg://app:hunter2@db/app?sslmode=require",
        "hunter2",
        kept=("db/app", "sslmode=require"),
    ),
    _hidden("mysql://root:p@ssw0rd!@db/app", "p@ssw0rd!", "ssw0rd", kept=("db/app",)),
    _hidden("postgres://app:pa/ss#wo?rd@db/app", "pa/ss#wo?rd", "ss#wo", kept=("db/app",)),
    _hidden("redis://:hunter2@cache:6379/0", "hunter2", kept=("cache:6379/0",)),
    _hidden("amqps://guest:guest-pw@mq.example/vhost", "guest-pw", kept=("mq.example/vhost",)),
    _hidden("mongodb+srv://me:hunter2@c0.example.net/db", "hunter2", kept=("c0.example.net/db",)),
    _hidden(
        "git clone https://x-access-token:abc123@github.example/o/r", "abc123", kept=("github.example/o/r",)
    ),
    _hidden(f"https://{_token('', 30)}@git.example/o/r.git", _token("", 30), kept=("git.example/o/r.git",)),
    _hidden(
        "ftp://user:pw9@ftp.example/a, sftp://user:pw8@ftp.example/b", "pw9", "pw8", kept=("ftp.example/b",)
    ),
    _hidden("(see https://u:pw7@h.example/x)", "pw7", kept=("h.example/x)",)),
    _hidden("'https://u:pw7@h.example/x'", "pw7", kept=("h.example/x'",)),
    _hidden(
        "a,https://plain.example,https://u:pw7@h.example", "pw7", kept=("https://plain.example", "h.example")
    ),
    _hidden("smtp://mailer:a%20b%40c@mx.example:587", "a%20b%40c", kept=("mx.example:587",)),
    _hidden("https://h.example/cb#access_token=abc123&state=5", "abc123", kept=("h.example/cb", "state=5")),
    _hidden("https://h.example/?a=1;token=abc123", "abc123", kept=("h.example", "a=1")),
    _hidden("GET /v1/x?api_key=abc123&page=2 HTTP/1.1 401", "abc123", kept=("page=2 HTTP/1.1 401",)),
    _hidden("<a href='https://h.example/?token=abc123'>x</a>", "abc123", kept=("'>x</a>",)),
    _hidden('{"url":"https://h.example/?token=abc123","next":"b"}', "abc123", kept=('"next"', "b")),
    _hidden("https://h.example/?X-Amz-Signature=deadbeef01&x=1", "deadbeef01", kept=("x=1",)),
    _hidden("https://h.example/?token=abc123&amp;page=2", "abc123", kept=("page=2",)),
    _hidden("otpauth://totp/me?secret=JBSWY3DP&issuer=x", "JBSWY3DP", kept=("issuer=x",)),
]

HEADER_SECRETS: Final = [
    _hidden("Authorization: Bearer abc.def", "abc.def", kept=("Authorization",)),
    _hidden("authorization: token abc123", "abc123"),
    _hidden("Proxy-Authorization: Basic abc123", "abc123"),
    _hidden(f"Authorization: Basic {BASIC}\nHost: h.example", BASIC, kept=("Host: h.example",)),
    _hidden('Authorization: Digest username="me", response="0a1b2c"\nok', "0a1b2c", '"me"', kept=("ok",)),
    _hidden("Authorization: AWS4-HMAC-SHA256 Credential=AK/2026, Signature=0a1b2c", "AK/2026", "0a1b2c"),
    _hidden(
        "curl -H 'Authorization: Bearer abc.def' https://h.example", "abc.def", kept=("' https://h.example",)
    ),
    _hidden('curl -H "X-Api-Key: abc123" https://h.example', "abc123", kept=('" https://h.example',)),
    _hidden("{'Authorization': 'Bearer abc def', 'Accept': 'x'}", "abc def", kept=("'Accept': 'x'",)),
    _hidden("headers={Authorization: Bearer abc}", "Bearer abc"),
    _hidden(f"server saw Bearer {_token('', 24)}", _token("", 24), kept=("server saw Bearer",)),
    _hidden("server saw Bearer not-a-token", "not-a-token"),
    _hidden("server saw bearer a1b2c3d4", "a1b2c3d4"),
    _hidden("server saw BEARER a1b2c3d4, sorry", "a1b2c3d4", kept=(", sorry",)),
    _hidden(f"sent Basic {BASIC} to h.example", BASIC, kept=("to h.example",)),
    _hidden(f"sent basic {BASIC}", BASIC),
    _hidden(
        "Cookie: a=1; theme=dark; sid=abc123\nHost: h.example", "abc123", "dark", kept=("Host: h.example",)
    ),
    _hidden("Set-Cookie: sid=abc123; Path=/; HttpOnly", "abc123"),
    _hidden("> cookie: sid=abc123", "abc123"),
    _hidden("sessionid=abc123; csrftoken=def456; theme=dark", "abc123", "def456", kept=("theme=dark",)),
    _hidden("X-CSRF-Token: abc123", "abc123"),
    _hidden("X-Hub-Signature-256: sha256=0a1b2c", "0a1b2c"),
    _hidden("auth=Basic abc123", "abc123"),
    _hidden("token: Bearer abc123", "abc123"),
]

TOKEN_SECRETS: Final = [
    *(
        _hidden(f"found {token}, stop", token[-16:], kept=("found ", ", stop"))
        for token in (
            JWT,
            JWT.rpartition(".")[0],
            ".".join((_part({"enc": "A256GCM"}), "a1", "b2", "c3", _token("", 20))),
            "AKIA" + "IOSFODNN7EXAMPLE",
            "ASIA" + "Y34FZKBOKMUTVV7A",
            _token("gh" + "p_", 36),
            _token("gh" + "o_", 36),
            _token("gh" + "u_", 36),
            _token("gh" + "s_", 36),
            _token("gh" + "r_", 36),
            "gh" + "p_" + "a" * 36,
            _token("github" + "_pat_", 22) + "_" + _token("", 59),
            _token("xox" + "b-123456789012-123456789012-", 24),
            _token("xox" + "p-1234567890-", 24),
            _token("xapp" + "-1-A0123-", 24),
            _token("sk_" + "live_", 24),
            _token("rk_" + "live_", 24),
            _token("sk_" + "test_", 24),
            _token("whsec" + "_", 32),
            _token("AI" + "za", 35),
            _token("npm" + "_", 36),
            _token("pypi" + "-AgEIcHlwaS5vcmc", 60),
            _token("pypi" + "-AgENdGVzdC5weXBpLm9yZw", 60),
            _token("glpat" + "-", 20),
            _token("hf" + "_", 34),
            _token("sk" + "-proj-", 40),
            _token("sk" + "-ant-api03-", 40),
            _token("sk" + "-", 48),
            _token("SG" + ".", 22) + "." + _token("", 43),
            _token("shpat" + "_", 32),
        )
    ),
    *(
        _hidden(f"key:\n{_pem(kind)}\nafter", PIECE, kept=("key:", "after"))
        for kind in (
            "RSA PRIVATE KEY",
            "EC PRIVATE KEY",
            "PRIVATE KEY",
            "OPENSSH PRIVATE KEY",
            "ENCRYPTED PRIVATE KEY",
        )
    ),
    _hidden(f"{_pem('PGP PRIVATE KEY BLOCK')} after", PIECE, kept=(" after",)),
    _hidden(f'{{"pem_file": "{_pem("PRIVATE KEY", chr(92) + "n")}", "n": 1}}', PIECE, kept=('"n": 1',)),
    _hidden(_pem("PRIVATE KEY")[:300], PIECE, PIECE[:20]),
    _hidden(
        f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n{PIECE}\n{PIECE}\n",
        PIECE,
    ),
]

CARD_SECRETS: Final = [
    _hidden(f"charged {card} twice", card, kept=("charged ", " twice"))
    for card in (
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4222222222222",
        "4012888888881881",
        "5555555555554444",
        "5105105105105100",
        "2223003122003222",
        "378282246310005",
        "3782 822463 10005",
        "371449635398431",
        "6011111111111117",
        "6011-0009-9013-9424",
        "3530111333300000",
        "30569309025904",
        "38520000023237",
        "6200000000000005",
    )
]

TEXT_SECRETS: Final = [
    _hidden("Config(password='a b c', user='me')", "a b c", kept=("user='me'",)),
    _hidden("Config(password=abc123, user=me)", "abc123", kept=("user=me)",)),
    _hidden("Config(password=abc123,user=me)", "abc123", kept=("user=me)",)),
    _hidden("Config(user=me, password=abc123)", "abc123", kept=("user=me",)),
    _hidden("Server=db;Uid=me;Pwd=abc123;Database=app", "abc123", kept=("Server=db", "Database=app")),
    _hidden("host=db user=me password=abc123 dbname=app", "abc123", kept=("host=db", "dbname=app")),
    _hidden("DefaultEndpointsProtocol=https;AccountKey=abc123==;Suffix=x", "abc123", kept=("Suffix=x",)),
    _hidden("password = abc123", "abc123"),
    _hidden("password := abc123", "abc123"),
    _hidden("if password == 'abc123':", "abc123"),
    _hidden('{:password=>"abc123", :n=>1}', "abc123", kept=(":n=>1",)),
    _hidden("['password' => 'abc123', 'n' => 1]", "abc123", kept=("'n' => 1",)),
    _hidden("password=b'abc 123' next", "abc 123", kept=("next",)),
    _hidden("password='it\\'s abc123' next", "abc123", kept=("next",)),
    _hidden('password="abc \\"123\\" def" next', "123", "def", kept=("next",)),
    _hidden("password='abc 123", "abc 123"),
    _hidden('password="""abc 123""" next', "abc 123", kept=("next",)),
    _hidden("def connect(password: str = 'abc123', port=1):", "abc123", kept=("port=1",)),
    _hidden("os.environ['API_KEY'] = 'abc123'", "abc123", kept=("os.environ",)),
    _hidden("Key (token)=(abc123) already exists.", "abc123", kept=("already exists.",)),
    _hidden("Api key: abc123", "abc123"),
    _hidden("the session id: abc123 has gone", "abc123", kept=("has gone",)),
    _hidden("the card number = 99887766 is short", "99887766", kept=("is short",)),
    _hidden("bad passphrase: correct horse battery staple", "horse", "staple"),
    _hidden("Password: correct horse battery staple\nnext", "horse", "staple", kept=("next",)),
    _hidden("  - password: correct horse\n    user: me", "horse", kept=("user: me",)),
    _hidden("export TOKEN=abc123", "abc123"),
    _hidden("mysqldump --password=abc123 app", "abc123", kept=("app",)),
    _hidden("Command '['curl', '--token', 'abc 123', 'h.example']' failed", "abc 123", kept=("'h.example'",)),
    _hidden('run ["login", "--user", "me", "--db-password", "abc123"]', "abc123", kept=('"me"',)),
    _hidden("password: p&q,r;s)t", "p&q,r;s)t", "q,r", "s)t"),
    _hidden("password=p&q,r;s)t next", "q,r", "s)t", kept=("next",)),
    _hidden("password=pa'ss\"wo<3d next", "wo<3d", kept=("next",)),
    _hidden("auth={'user': 'me', 'x': {'y': 'abc123'}} next", "abc123", kept=("next",)),
    _hidden('"auth": ["abc123", "def456"], "n": 1', "abc123", "def456", kept=('"n": 1',)),
    _hidden('{"auth": {\n  "key": "abc123"\n}, "n": 1} ', "abc123", kept=('"n": 1',)),
    _hidden('log {"a": "{\\"password\\": \\"abc 123\\", \\"n\\": 1}"}', "abc 123", kept=("n",)),
    _hidden('log {\\\\\\"password\\\\\\": \\\\\\"abc 123\\\\\\"}', "abc 123"),
    _hidden("log " + "password=" + chr(92) * 31 + '"abc 123' + chr(92) * 31 + '"', "abc 123"),
    _hidden("password=ab" + chr(92) * 2 + "cd next", "ab", "cd", kept=("next",)),
    _hidden("pin: 1234", "1234"),
    _hidden("x-pin:1234", "1234"),
    _hidden("token:abc123", "abc123"),
    _hidden("token=[abc123", "abc123"),
    _hidden("cvv=123 exp=12/29", "123", kept=("exp=12/29",)),
    _hidden("ssn: 078-05-1120", "078-05-1120"),
    _hidden("iban=DE89370400440532013000", "DE89370400440532013000"),
    _hidden("dob: 1970-01-01", "1970-01-01"),
    _hidden("user password: abc123", "abc123", kept=("user password",)),
    _hidden("PASSWORD        : abc123", "abc123"),
    _hidden('<add name="x" password="abc123" />', "abc123", kept=('name="x"', "/>")),
    _hidden("password=abc123\\nuser=me", "abc123", kept=("user=me",)),
    _hidden("secret=[redacted]-not abc token=abc123", "abc123", kept=("[redacted]",)),
]

SECRETS: Final = [
    *KEY_SECRETS,
    *URL_SECRETS,
    *HEADER_SECRETS,
    *TOKEN_SECRETS,
    *CARD_SECRETS,
    *TEXT_SECRETS,
]

LOOK_ALIKES: Final = [
    line.strip("\n")
    for line in r"""
author: Bob
author=Bob
authors: Bob, Eve
co-author=Bob
authority=example.com
authentic=yes
keyboard=qwerty
monkey: see
key=value
key: value
keys=3
primary_key=17
foreign_key=orders.id
cache_key=user:17
sort_key=name
public_key=abc
api=v2
access=granted
private=true
client=web
client_id=web
session=5
card=visa
number=12
database=app
connection=closed
webhook=on
string=abc
url=https://example.com/a
id=17
passenger=Bob
passengers=3
passed=12
passing=true
bypass=true
compass=north
passive=yes
encompass=1
tokens=512
max_tokens=512
token_count=512
tokenCount: 512
prompt_token_count=20
tokenizer=bpe
tokenize: yes
secretary=Ann
secretariat: UN
cookiecutter=2
discord=on
spin=left
pinned=true
pinch: 2
opinion=good
option=1
company=ACME
japan=1
panel=left
span=3
expand=all
singular: yes
single=1
using=sqlite
basin=3
design=new
signed=true
sign=+
salty=yes
basalt=1
dsname=x
hotpot=1
adobe=1
doberman: dog
saliban=1
cvs=old
pinyin=zh
kapan=3
pwdx=1
Traceback (most recent call last):
  File "/srv/app/auth.py", line 12, in login
  File "/srv/app/token.py", line 3, in <module>
tests/test_auth.py:12: AssertionError
tests/test_auth.py::test_login FAILED
src/session-token.js:10:5
auth.example.com:443 refused
http://auth:8080/health
http://token-service:8080/health
auth-service:8080 refused
if valid(token): return
auth://host/x
Token::new
Auth::login failed
jwt.exceptions.InvalidTokenError: Not enough segments
InvalidSignatureError: Signature verification failed
ExpiredTokenException: gone since 3 days
BadSignature: does not match
MissingPassword: give one
AuthenticationError: 401
WrongPinError: two tries left
InvalidToken
KeyError: 'password'
KeyError: 'token'
TypeError: login() missing 1 required argument: 'user'
AttributeError: 'Session' object has no attribute 'token'
ValueError: password must not be empty
ValueError: the token has expired
password is required
your password was changed
wrong password
no password given
forgot password?
--token is required
['login', '--author', 'Bob']
Bearer token is missing
Bearer authentication required
the bearer of bad news
the bearer arrives tomorrow
WWW-Authenticate: Bearer realm="example"
Basic authentication failed
Basic auth is off
a basic understanding of it
BASIC programming
eyJust.a.word
eyJ.eyJ.eyJ
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
expected '-----BEGIN PRIVATE KEY-----' at the start
-----BEGIN RSA PRIVATE KEY----- is missing
AKIA is a prefix
ASIAPACIFIC
ghp_short
npm_config_registry=https://registry.npmjs.org/
npm_lifecycle_event=test
hf_hub
github_pat_
xoxo-hugs
sk-learn
task-runner-with-a-long-name-0001
risk-assessment-of-a-very-long-name
AIzawa Shota
pypi-publish-action
SG.1
glpat-x
https://registry.npmjs.org/@scope/package
https://medium.com/@user/story
https://example.com:8080/path@2x.png
https://example.com/a?email=a@example.com
git@github.com:org/repo.git
ssh://git@github.com/org/repo.git
user@example.com
mailto:user@example.com
https://example.com/v1/charges?page=2&sort=name#top
C:\Users\me\file.txt
4111111111111112
4111-1111-1111-1112
1234567890123456
0000000000000000
9999999999999995
1700000000000000
1764547200000000000
12.4111111111111111
4111111111111111.5
0x4111111111111111
a4111111111111111b
411111111111
41111111111111111111111
978-3-16-148410-0
550e8400-e29b-41d4-a716-446655440000
4b825dc642cb6eb9a060e54bf8d69288fbee4904
+49 30 901820
192.168.0.1
2001:db8:85a3:0:0:8a2e:370:7334
a1:b2:c3:d4:e5:f6
user=bob@example.com
phone: +1 202 555 0143
ip=10.0.0.1
2026-12-01T11:26:00.000000+00:00
job 17 of queue mail failed after 3 attempts
duplicate key value violates unique constraint "jobs_pkey"
Key (id)=(17) already exists.
could not connect to server: Connection refused
SSL: CERTIFICATE_VERIFY_FAILED
[redacted]
[redaction failed]
password=[redacted]
https://[redacted]@example.com/?token=[redacted]
{"password": "[redacted]"}
password=""
token=
pass:
""".splitlines()
    if line
]


def _fill(piece: str) -> str:
    return (piece * (1024 * 1024 // len(piece) + 1))[: 1024 * 1024]


HOSTILE: Final = {
    "letters": _fill("a"),
    "digits": _fill("4"),
    "equals": _fill("="),
    "colons": _fill(":"),
    "quotes": _fill('"'),
    "backslashes": _fill("\\"),
    "blanks": _fill(" "),
    "newlines": _fill("\n"),
    "dots": _fill("."),
    "hyphens": _fill("-"),
    "underscores": _fill("_"),
    "upper As": _fill("A"),
    "open brackets": _fill("["),
    "open braces": _fill("{"),
    "short pairs": _fill("aaa="),
    "one-letter pairs": _fill("=a"),
    "words": _fill("password token secret "),
    "a name and letters": "password" + _fill("x"),
    "a name, blanks": "password" + _fill(" "),
    "names joined": _fill("password="),
    "names quoted": _fill('password="'),
    "names apostrophes": _fill("password='\n"),
    "names escaped": _fill('password=\\"'),
    "a name, backslashes": "password=" + _fill("\\"),
    "a name, backslashes, letters": "password=" + _fill("\\a"),
    "names backslashes": "".join("password=" + "\\" * size + '"a ' for size in range(1400)),
    "names blank lines": _fill("password=" + " " * 60 + "\n"),
    "names open": _fill("password={" + "a" * 60 + "\n"),
    "names open or": _fill("password={" + "a" * 60 + "\ntoken=[" + "a" * 60 + "\n"),
    "names wide quoted": _fill("password='" + "x" * 60 + "\n"),
    "names wide, sentences": _fill("an invalid password: " + "x" * 60 + " "),
    "names braces": _fill("password={"),
    "names braces deep": _fill("password={{}{"),
    "names commas": _fill("password=a,"),
    "names ampersands": _fill("token=a&"),
    "names blanks": _fill("password=a "),
    "names wide": _fill("password=" + "x" * 40 + " "),
    "names redacted": _fill("password=[redacted] "),
    "names lines": _fill("password: a\n"),
    "camels": _fill("aPassWord"),
    "arguments": _fill("--token', 'a"),
    "schemes": _fill("://"),
    "urls": _fill("https://a"),
    "urls with users": _fill("https://a:b@"),
    "urls with users, blanks": _fill("https://a:b@c "),
    "urls with one at": _fill("https://a:") + "@",
    "ats": "://" + _fill("@"),
    "at a": "://" + _fill("@a"),
    "bearers": _fill("Bearer "),
    "bearers with values": _fill("Bearer a1b2c3d4e5 "),
    "basics": _fill("Basic YTpi "),
    "jwt starts": _fill("eyJ"),
    "jwt starts, dots": _fill("eyJ."),
    "jwt starts, hyphens": _fill("-eyJ.a"),
    "jwts": _fill("eyJhIjoxfQ.a.b "),
    "a long jwt": _fill("eyJhIjoxfQ") + ".a.b",
    "pem starts": _fill("-----BEGIN PRIVATE KEY-----"),
    "pem starts, bodies": _fill("-----BEGIN PRIVATE KEY-----AAAAAAAAAAAAAAAAAAAA"),
    "a long pem": "-----BEGIN PRIVATE KEY-----" + _fill("A"),
    "pem hyphens": "-----BEGIN PRIVATE KEY-----AAAAAAAAAAAAAAAA" + _fill("-a"),
    "tokens": _fill("ghp_" + "a1" * 18 + " "),
    "token bodies": _fill("_" + "a" * 16),
    "slack starts": _fill("xoxb-"),
    "aws starts": _fill("AKIA"),
    "sendgrid starts": _fill("SG." + "a" * 16),
    "cards": _fill("4111111111111111 "),
    "no cards": _fill("4111111111111112 "),
    "cards in groups": _fill("4111 1111 "),
    "cards with hyphens": _fill("4111-"),
    "one long line": _fill("Traceback File line in handler raise ValueError invalid literal: "),
    "deep json": _fill("[[") + "1",
    "json keys": '{"a": 1' + _fill(', "password": "x"') + "}",
}
