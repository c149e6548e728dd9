"""Tokens of forms: a form is taken only from a page of the same session in the same browser's origin.

A session's cookie goes to every port of its host, so who sees it there could load our pages with it. The
token is therefore in no page of a session: it goes to the browser once, at login, in the part of the address
that is not sent to servers, and our script keeps it where pages of other origins, and so of other ports,
cannot read it.

Beside that a session's cookie is sent by our own pages alone (SameSite), and requests of other pages are
refused (`auth.refuse_other_pages`).
"""

from __future__ import annotations

import hmac
import secrets

from fastapi import Request

from starburst.web.errors import HttpError
from starburst.web.sessions import Sessions, cookies

#: The name of the field.
FIELD = "form_token"


#: Why a form is refused, and the mend.
REFUSED = "this form is of a page from before a restart or another login; load it again, or log in again"


class FormTokens:
    """Makes and checks the tokens of one process; nothing is kept but a key."""

    def __init__(self, sessions: Sessions) -> None:
        self._key, self._sessions = secrets.token_bytes(32), sessions

    def of_session(self, id_: str) -> str:
        """The token of a session; "": of all who need none."""
        return hmac.new(self._key, id_.encode(), "sha256").hexdigest()

    def for_page(self, request: Request) -> str:
        """What a page contains: the token for those without a session, else "", since the browser has it."""
        return "" if self._ids(request) else self.of_session("")

    def check(self, request: Request, token: str) -> None:
        """Refuse a form that comes from elsewhere.

        Raises:
            HttpError: 403, the token is another session's or process's.
        """
        given = token.encode()
        ids = self._ids(request) or [""]
        if not any(hmac.compare_digest(self.of_session(id_).encode(), given) for id_ in ids):
            raise HttpError(403, REFUSED)

    def _ids(self, request: Request) -> list[str]:
        return [id_ for id_ in cookies(request) if self._sessions.token_hash(id_)]
