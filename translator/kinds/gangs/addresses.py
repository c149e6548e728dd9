"""Lines of sh by which a task of a gang knows the addresses of all tasks: SKYPILOT_NODE_IPS, by rank."""

from __future__ import annotations

from shlex import quote

#: A gang without addresses must not run until its time is over.
_NONE = "starburst: the addresses of the tasks are not known here: SKYPILOT_NODE_IPS is not set"
#: Pods have them in a file, once the last one has an address; its kubelet brings them within seconds.
ALL_ADDRESSES = (
    'if [ -z "${SKYPILOT_NODE_IPS:-}" ] && [ -n "${STARBURST_HOSTS_FILE:-}" ]; then\n'
    "  starburst_waited=0\n"
    '  until [ -s "$STARBURST_HOSTS_FILE" ] || [ "$starburst_waited" -ge 600 ]; do\n'
    "    sleep 1\n"
    "    starburst_waited=$((starburst_waited + 1))\n"
    "  done\n"
    '  SKYPILOT_NODE_IPS=`cat "$STARBURST_HOSTS_FILE"`\n'
    "  export SKYPILOT_NODE_IPS\n"
    "fi\n"
    f'[ -n "${{SKYPILOT_NODE_IPS:-}}" ] || {{ echo {quote(_NONE)} >&2; exit 127; }}\n'
)
