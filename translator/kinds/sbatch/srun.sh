#!/bin/sh
# srun: runs a program once per task of the batch job, on this node or, of several, by starburst-step on all.
refuse() { echo "srun: $1" >&2; exit 2; }
tasks= per_task=${SLURM_GPUS_PER_TASK:-} label= kill_all= chdir= nodes= per_node= nodelist= relative=
while [ $# -gt 0 ]; do
  option=$1
  case $option in
    --) shift; break ;;
    --*=*) name=${option%%=*}; value=${option#*=}; shift ;;
    --label|--unbuffered|--overlap|--exclusive|--exact|--overcommit|--no-kill|--verbose|--quiet|--pty|\
    --kill-on-bad-exit|--disable-status|--contiguous|--preserve-env|--propagate|--immediate|\
    --external-launcher|--whole|--oversubscribe|--interactive|--no-allocate|--spread-job|--use-min-nodes|\
    --multi-prog)
      name=$option; value=; shift ;;
    --*) name=$option; value=${2-}; shift; [ $# -eq 0 ] || shift ;;
    -[lukvQOXsKEI]) name=$option; value=; shift ;;
    -??*) value=${option#-?}; name=${option%"$value"}; value=${value#=}; shift ;;
    -?) name=$option; value=${2-}; shift; [ $# -eq 0 ] || shift ;;
    *) break ;;
  esac
  case $name in
    -n|--ntasks) tasks=$value ;;
    --ntasks-per-node) per_node=$value ;;
    -N|--nodes) nodes=${value%%-*} ;;
    -w|--nodelist) nodelist=$value ;;
    -r|--relative) relative=$value ;;
    -x|--exclude) refuse "$name is not supported; name the nodes with --nodelist" ;;
    --gpus-per-task) per_task=${value##*:} ;;
    -l|--label) label=1 ;;
    -K|--kill-on-bad-exit) [ "$value" = 0 ] || kill_all=1 ;;
    -D|--chdir) chdir=$value ;;
    --multi-prog|--het-group) refuse "$name is not supported" ;;
  esac
done
[ $# -gt 0 ] || refuse "no program is given"
[ -z "$chdir" ] || cd "$chdir" || exit 1
for number in "$tasks" "$nodes" "$per_node" "$relative" "$per_task"; do
  case $number in *[!0-9]*) refuse "$number: must be a number" ;; esac
done
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
  case $nodelist in *[!A-Za-z0-9_.,:-]*) refuse "--nodelist $nodelist: write names with commas" ;; esac
  [ -n "$tasks$nodes$per_node$nodelist" ] || tasks=${SLURM_NTASKS:-1}
  exec starburst-step "{\"tasks\": ${tasks:-0}, \"nodes\": ${nodes:-0},\
 \"per_node\": ${per_node:-${SLURM_NTASKS_PER_NODE:-0}}, \"nodelist\": \"$nodelist\",\
 \"relative\": ${relative:-0}, \"label\": ${label:-0}, \"kill_all\": ${kill_all:-0},\
 \"gpus_per_task\": ${per_task:-0}}" "$@"
fi
case ${nodes:-1} in 1) ;; *) refuse "--nodes $nodes: the job has one node" ;; esac
tasks=${tasks:-${per_node:-${SLURM_NTASKS:-1}}}
case $tasks in ''|*[!0-9]*|0) refuse "--ntasks $tasks: must be a number, at least 1" ;; esac
export SLURM_NTASKS="$tasks" SLURM_NPROCS="$tasks" SLURM_STEP_NUM_TASKS="$tasks" SLURM_STEP_NUM_NODES=1

run_task() {
  export SLURM_PROCID="$1" SLURM_LOCALID="$1" SLURM_NODEID=0
  if [ -n "$per_task" ] && [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    from=$(($1 * per_task + 1)) to=$((($1 + 1) * per_task))
    CUDA_VISIBLE_DEVICES=$(printf %s "$CUDA_VISIBLE_DEVICES" | cut -d , -f "$from-$to")
    export CUDA_VISIBLE_DEVICES
  fi
  [ -z "$label" ] || exec >"$places/$1" 2>&1
  shift
  exec "$@"
}

# Runs a task, and has all of them end if it fails.
run_guarded() {
  child=
  trap '[ -z "$child" ] || kill "$child" 2>/dev/null' TERM
  run_task "$@" &
  child=$!
  wait "$child"
  code=$?
  while kill -0 "$child" 2>/dev/null; do  # a signal cut the wait short
    wait "$child"
    code=$?
  done
  echo "$code" >"$places/code-$1"
  [ "$code" -eq 0 ] || kill -s USR1 $$
}

if [ "$tasks" -eq 1 ] && [ -z "$label" ]; then
  run_task 0 "$@"
fi
[ -z "$label$kill_all" ] || places=$(mktemp -d) || exit 1
processes= readers= task=0 failed=
trap 'kill $processes 2>/dev/null' TERM INT
trap 'failed=1' USR1
while [ "$task" -lt "$tasks" ]; do
  if [ -n "$label" ]; then
    mkfifo "$places/$task"
    sed "s/^/$task: /" <"$places/$task" &
    readers="$readers $!"
  fi
  if [ -n "$kill_all" ]; then (run_guarded "$task" "$@") & else (run_task "$task" "$@") & fi
  processes="$processes $!"
  task=$((task + 1))
done
status=0
if [ -n "$kill_all" ]; then
  while [ -z "$failed" ]; do  # all have ended, or one has failed
    living=
    for process in $processes; do kill -0 "$process" 2>/dev/null && living=1; done
    [ -n "$living" ] || break
    sleep 0.1
  done
  # More than once: a shell that has just been forked can miss a signal.
  for pause in 0.2 1 0; do
    [ -z "$failed" ] || { kill $processes 2>/dev/null; sleep "$pause"; }
  done
fi
for process in $processes; do
  wait "$process"
  code=$?
  while [ "$code" -gt 128 ] && kill -0 "$process" 2>/dev/null; do  # a signal cut the wait short
    wait "$process"
    code=$?
  done
  [ "$code" -le "$status" ] || status=$code
done
for process in $readers; do wait "$process"; done
if [ -n "$kill_all" ]; then
  for file in "$places"/code-*; do
    read -r code <"$file"
    [ "$code" -le "$status" ] || status=$code
  done
fi
[ -z "$label$kill_all" ] || rm -r "$places"
exit "$status"
