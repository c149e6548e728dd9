#!/bin/sh
# starburst-ray: starts a Ray of the job's own on all tasks of a gang, runs a program on it, and ends it.
# Arguments: run|submit|serve, a runtime environment (JSON or ""), and the program; on the other tasks, where the
# first calls it: join. Each line of STARBURST_RAY_OPTIONS has a number of tasks and their options of ray start.
# Ray's own stop command would end other Rays of this user, so it is not called.
say() { echo "starburst: $1" >&2; }
mode=$1 runtime_env=$2
shift 2
command -v ray >/dev/null 2>&1 || { say "the image has no ray; choose one that has it, or install it"; exit 127; }
# Seconds between SIGTERM and SIGKILL of a job that is stopped: the site has its own grace.
export RAY_JOB_STOP_WAIT_TIME_S="${RAY_JOB_STOP_WAIT_TIME_S:-600}"
nodes=${STARBURST_WORLD_SIZE:-1} head=${SLURM_JOB_NODELIST%%,*} ending= program= job= workers=
# Ray knows a machine that is alone by another address than the loopback's.
case $head in 127.*|::1) at= ;; *) at="--node-ip-address=$SLURMD_NODENAME" ;; esac
own=$(printf '%s\n' "$STARBURST_RAY_OPTIONS" | {
  rank=${STARBURST_RANK:-0}
  while read -r count words; do
    [ "$rank" -ge "$count" ] || { echo "$words"; break; }
    rank=$((rank - count))
  done
})
common="--block --min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0 --disable-usage-stats $at $own"
# A site's SIGTERM may go to all processes of a session at once. Ray is in one of its own, as the program has its grace
# to save on it.
apart() { exec python3 -c 'import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])' "$@"; }
lives() { case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) in Z*|"") return 1 ;; esac; }
# Ray's own end may hang once a part of it is gone.
end() {
  kill "$1" 2>/dev/null
  left=${STARBURST_RAY_END_S:-20}
  while lives "$1"; do
    [ "$left" -gt 0 ] || kill -9 "-$1" "$1" 2>/dev/null
    left=$((left - 1))
    sleep 1
  done
  wait "$1"
}
# A node of Ray ends with its head, not before.
head_answers() {
  python3 -c 'import socket, sys
host, _, port = sys.argv[1].rpartition(":")
socket.create_connection((host, int(port)), 5).close()' "$RAY_ADDRESS" 2>/dev/null
}
if [ "$mode" = join ]; then
  trap ending=1 TERM INT
  while [ -z "$ending" ]; do
    eval "apart ray start --address=$RAY_ADDRESS $common" & ray=$!
    while [ -z "$ending" ] && lives "$ray"; do sleep 1; done
    [ -n "$ending" ] || ! wait "$ray" || exit 0
  done
  while head_answers; do sleep 1; done
  end "$ray"
  exit
fi
# Several Rays may share a machine: the usual ports if they are free, and no fixed range of ports for workers.
free_port() {
  python3 -c 'import socket, sys
for port in (int(sys.argv[1]), 0):
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError:
            continue
        print(trial.getsockname()[1])
        break' "$1"
}
port=$(free_port 6379) clients=$(free_port 10001) || exit 1
where=$(mktemp -d /tmp/ray-XXXXXX) || exit 1
stop() {
  ending=1
  touch "$where.stop"
  if [ -n "$job" ]; then
    ray job stop --no-wait "$job" >/dev/null 2>&1  # its log is followed to its end
  elif [ -n "$program" ]; then
    kill "$program" 2>/dev/null
  fi
}
trap stop TERM INT
# Ray's agents, which run what is submitted, come up after all else: until then Ray refuses it.
# Unbuffered, or what the program says came with its end only: the output is no terminal.
submit() {
  tries=0
  until PYTHONUNBUFFERED=1 ray job submit "$@" 2>"$where.said"; do
    tries=$((tries + 1))
    if ! grep -q "No available agent" "$where.said" || [ "$tries" -gt 300 ] || [ -e "$where.stop" ]; then
      cat "$where.said" >&2
      return 1
    fi
    sleep 2
  done
  cat "$where.said" >&2
}
start_head() {
  eval "apart ray start --head --port=$port --ray-client-server-port=$clients --temp-dir=$where $common" \
    >>"$where.log" 2>&1 &
  ray=$!
}
export RAY_ADDRESS="$head:$port"
if [ "$nodes" -gt 1 ]; then
  starburst-step "{\"tasks\": $((nodes - 1)), \"nodes\": $((nodes - 1)), \"per_node\": 1, \"nodelist\": \"\",\
 \"relative\": 1, \"label\": 0, \"kill_all\": 1, \"gpus_per_task\": 0}" starburst-ray join "" >>"$where.log" 2>&1 &
  workers=$!
fi
# Until all nodes are there; exit code 4 if they do not come, others if the head has ended or does not answer.
all_nodes() {
  python3 - "$nodes" "$ray" <<'END'
import os, sys, time
import ray
until = time.monotonic() + 600
while True:
    try:
        with open(f"/proc/{sys.argv[2]}/stat") as stat:
            state = stat.read().rpartition(")")[2].split()[0]
    except OSError:
        state = "Z"
    if state == "Z":
        sys.exit(3)
    try:
        ray.init(address=os.environ["RAY_ADDRESS"], logging_level="ERROR", log_to_driver=False)
        break
    except (ConnectionError, RuntimeError, ValueError):
        if time.monotonic() > until:
            raise
        time.sleep(0.5)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]):
    if time.monotonic() > until:
        print("starburst: not all nodes of Ray came within 600 s", file=sys.stderr)
        sys.exit(4)
    time.sleep(0.2)
END
}
# A machine that is busy may not start it within the 30 s that parts of Ray give each other.
for try in 1 2 3; do
  start_head
  all_nodes
  code=$?
  case "$code/$ending" in 0/*|4/*|*/1) break ;; esac
  [ "$try" -eq 3 ] || end "$ray"
done
[ "$code" -eq 0 ] || { say "Ray did not start:"; tail -n 20 "$where.log" >&2; code=1 ending=1; }
if [ "$mode" = submit ] && [ -z "$ending" ] && ! ray job list >/dev/null 2>&1; then
  [ -z "$runtime_env" ] ||
    { say "a runtime environment needs Ray's job submission: install ray[default]"; code=2 ending=1; }
  say "Ray's job submission is not installed; the program runs beside the head"
  mode=run
  set -- sh -c "$*"
fi
if [ -z "$ending" ]; then
  case $mode in
    serve) say "Ray is up at $RAY_ADDRESS until this job ends"; program=$ray ;;
    submit)
      job="${STARBURST_JOB:-job}-${STARBURST_ATTEMPT:-1}"
      # Its exit code is kept: that of ray job submit is 1 for any failure.
      set -- --submission-id "$job" -- sh -c "($*
); code=\$?; echo \$code >$where.code; exit \$code"
      [ -z "$runtime_env" ] || set -- --runtime-env-json "$runtime_env" "$@"
      # What follows the log stays for what the program says while it ends.
      (trap '' TERM INT; submit "$@") & program=$! ;;
    *) "$@" & program=$! ;;
  esac
  [ -z "$ending" ] || stop  # a signal came meanwhile
  wait "$program"
  code=$?
  while kill -0 "$program" 2>/dev/null; do  # a signal cut the wait short
    wait "$program"
    code=$?
  done
fi
[ ! -s "$where.code" ] || code=$(cat "$where.code")
kill $workers 2>/dev/null
end "$ray"
wait $workers
rm -rf "$where" "$where.log" "$where.code" "$where.said" "$where.stop"
exit "$code"
