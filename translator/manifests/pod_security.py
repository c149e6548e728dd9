"""Checks each field of a pod against a level of Kubernetes' Pod Security Standards.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/, as of Kubernetes 1.34. An absent
field is not refused, although the level restricted requires some fields: most images run as root. In a
namespace with the label pod-security.kubernetes.io/enforce the API server enforces the whole standard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from translator.field import Field

PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
LEVELS = (RESTRICTED, BASELINE, PRIVILEGED)

CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_HOST = ("hostNetwork", "hostPID", "hostIPC")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_CAPABILITIES = {
    BASELINE: (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    ),
    RESTRICTED: ("NET_BIND_SERVICE",),
}
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_PROFILES = ("RuntimeDefault", "Localhost")
#: Values of the annotations that preceded the fields; old API servers still read them.
_PROFILE_NAMES = ("runtime/default", "docker/default", "localhost/")
_PROFILE_ANNOTATIONS = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/pod",
)
_SYSCTLS = (
    "kernel.shm_rmid_forced",
    *(
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
    ),
    *("net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
    *("net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_rmem"),
    *("net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem"),
)
_VOLUMES = (
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"),
    "secret",
)


def judge(template: Field, level: str) -> None:
    """Refuse each field of a pod template that exceeds a level; errors go to the field's report."""
    if level == PRIVILEGED:
        return
    spec = template.at("spec")
    for key in _HOST:
        _unset(spec.at(key), level)
    _volumes(spec, level)
    for sysctl in spec.at("securityContext").at("sysctls").items():
        _one_of(sysctl.at("name"), _SYSCTLS, level)
    _context(spec.at("securityContext"), level)
    for container in containers_of(spec):
        _container(container, level)
    for key, annotation in template.at("metadata").at("annotations").entries().items():
        if key.startswith(_PROFILE_ANNOTATIONS) and not str(annotation.value).startswith(_PROFILE_NAMES):
            _beyond(annotation, level)


def containers_of(spec: Field) -> Iterator[Field]:
    """All containers of a pod, of every kind."""
    for kind in CONTAINERS:
        yield from spec.at(kind).items()


def _volumes(spec: Field, level: str) -> None:
    for volume in spec.at("volumes").items():
        for kind, source in volume.entries().items():
            listed = kind in _VOLUMES if level == RESTRICTED else kind != "hostPath"
            if kind != "name" and source.value is not None and not listed:
                _beyond(source, level)


def _container(container: Field, level: str) -> None:
    context = container.at("securityContext")
    _unset(context.at("privileged"), level)
    _one_of(context.at("procMount"), ("Default",), level)
    for capability in context.at("capabilities").at("add").items():
        _one_of(capability, _CAPABILITIES[level], level)
    if level == RESTRICTED:
        _unset(context.at("allowPrivilegeEscalation"), level)
    _context(context, level)
    for port in container.at("ports").items():
        if port.at("hostPort").value not in (None, 0):
            _beyond(port.at("hostPort"), level)
    handlers = [container.at(probe) for probe in _PROBES]
    handlers += [container.at("lifecycle").at(hook) for hook in ("postStart", "preStop")]
    for handler in handlers:
        for action in ("httpGet", "tcpSocket"):
            if handler.at(action).at("host").value not in (None, ""):
                _beyond(handler.at(action).at("host"), level)


def _context(context: Field, level: str) -> None:
    """Check the fields that the security contexts of pods and containers share."""
    _unset(context.at("windowsOptions").at("hostProcess"), level)
    for kind in ("seccompProfile", "appArmorProfile"):
        _one_of(context.at(kind).at("type"), _PROFILES, level)
    selinux = context.at("seLinuxOptions")
    _one_of(selinux.at("type"), _SELINUX_TYPES, level)
    for key in ("user", "role"):
        _one_of(selinux.at(key), ("",), level)
    if level == RESTRICTED:
        if context.at("runAsNonRoot").value not in (None, True):
            _beyond(context.at("runAsNonRoot"), level)
        if context.at("runAsUser").value is not None and not context.at("runAsUser").value:
            _beyond(context.at("runAsUser"), level)


def _unset(field: Field, level: str) -> None:
    if field.value not in (None, False):
        _beyond(field, level)


def _one_of(field: Field, allowed: Collection[str], level: str) -> None:
    if field.value is not None and field.value not in allowed:
        _beyond(field, level)


def _beyond(field: Field, level: str) -> None:
    field.refuse(f"is more than cluster.pod_security: {level} allows; remove it")
