#!/bin/sh
# Starts a command in a task of the gang, called as ssh is: starburst-rsh [OPTIONS] starburst-task-N COMMAND…
while [ "${1#-}" != "$1" ]; do
  case "$1" in -[bcDEeFIiJLlmOopQRSWw]) shift ;; esac # its value follows
  shift
done
task=${1##*@starburst-task-}
task=${task#starburst-task-}
shift
case "$task" in
  "" | *[!0-9]*) echo "starburst-rsh: $task: is no task of this gang" >&2; exit 255 ;;
esac
exec starburst-step "{\"nodes\": 1, \"tasks\": 1, \"per_node\": 0, \"relative\": $task, \"nodelist\": \"\", \
\"label\": false, \"kill_all\": false, \"gpus_per_task\": 0}" /bin/sh -c "$*"
