# shellcheck shell=bash
# Sourced by run: the row store, and the servers that are its peers. Each server has a directory of
# its own on the disk that is measured, listens on a unix socket there only, and runs as an ordinary
# user. Needs say, program, measure, measure_long, end_server, $raw, $temporary, $short_runs,
# $long_runs, the array of peers and that of servers to be ended.
# shellcheck disable=SC2154  # those come from run

readonly store_parts=${BENCH_STORE_PARTS:-requests commits share large owned redis redis_restart}
readonly store_requests=${BENCH_STORE_REQUESTS:-50000}
readonly store_seconds=${BENCH_STORE_SECONDS:-60}
readonly store_timers=${BENCH_STORE_TIMERS:-1000000}
readonly store_sync_us=${BENCH_STORE_SYNC_US:-}
readonly store_processes=4
readonly bullmq_version=5.81.5
store_directory=

# as_user USER COMMAND...: the command in place of this shell, as that user if we are root.
as_user() {
  local user=$1
  shift
  if ((EUID == 0)); then
    exec setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups -- "$@"
  fi
  exec "$@"
}

# own_directory NAME USER: sets `directory`, which belongs to that user if we are root.
own_directory() {
  directory=$store_directory/$1
  rm -rf "$directory"
  mkdir "$directory"
  ((EUID != 0)) || chown "$2" "$directory"
}

# wait_for_socket PATH: false if the server has ended, or does not listen within 10 seconds.
wait_for_socket() {
  for ((i = 0; i < 200; ++i)); do
    [[ -S $1 ]] && return 0
    kill -0 "$server" 2>/dev/null || return 1
    sleep 0.05
  done
  return 1
}

start_beanstalkd() {
  command -v beanstalkd >/dev/null || { say "beanstalkd is not installed"; return 1; }
  own_directory beanstalkd nobody
  # -f0: each write is synced.
  (as_user nobody beanstalkd -l "unix:$directory/socket" -b "$directory" -f0) \
    2>"$temporary/beanstalkd.log" &
  server=$!
  servers+=("$server")
  arguments=(--socket="$directory/socket")
  wait_for_socket "$directory/socket" && return
  say "beanstalkd did not start: $(cat "$temporary/beanstalkd.log")"
  end_server "$server"
  return 1
}

start_postgresql() {
  local programs
  programs=$(printf '%s\n' /usr/lib/postgresql/*/bin/postgres | sort -V | tail -1)
  [[ -x $programs ]] || { say "postgresql is not installed"; return 1; }
  programs=${programs%/*}
  own_directory postgresql postgres
  if ! (as_user postgres "$programs/initdb" -D "$directory/data" -U postgres -A trust) \
    >"$temporary/postgresql.log" 2>&1; then
    say "initdb failed: $(cat "$temporary/postgresql.log")"
    return 1
  fi
  (as_user postgres "$programs/postgres" -D "$directory/data" -k "$directory" \
    -c listen_addresses= -c synchronous_commit=on) >"$temporary/postgresql.log" 2>&1 &
  server=$!
  servers+=("$server")
  arguments=(--connect="host=$directory user=postgres dbname=postgres")
  if wait_for_socket "$directory/.s.PGSQL.5432"; then
    for ((i = 0; i < 200; ++i)); do
      "$programs/pg_isready" -q -h "$directory" && return 0
      sleep 0.05
    done
  fi
  say "postgresql did not start: $(cat "$temporary/postgresql.log")"
  end_server "$server"
  return 1
}

# One core is the server's, so that what the clients do does not count. It keeps no log, unless the
# argument is "yes", and no copy on a disk.
start_redis() {
  command -v redis-server >/dev/null || { say "redis-server is not installed"; return 1; }
  own_directory redis nobody
  launch_redis "${1:-no}"
}

# Starts it in `directory`, with what is there.
launch_redis() {
  socket=$directory/socket
  rm -f "$socket"
  (as_user nobody taskset -c 0 redis-server --port 0 --unixsocket "$socket" --unixsocketperm 777 \
    --dir "$directory" --save '' --appendonly "$1") >"$temporary/redis.log" 2>&1 &
  server=$!
  servers+=("$server")
  wait_for_socket "$socket" && return
  say "redis-server did not start: $(tail -3 "$temporary/redis.log")"
  end_server "$server"
  return 1
}

# Sets `modules`, where BullMQ is installed. It is downloaded once for each build directory.
install_bullmq() {
  modules=$build/bullmq
  [[ -d $modules/node_modules/bullmq ]] && return
  command -v npm >/dev/null || { say "npm is not installed: no column for BullMQ"; return 1; }
  mkdir -p "$modules"
  npm install --prefix "$modules" --no-save --no-audit --no-fund --ignore-scripts \
    "bullmq@$bullmq_version" >"$temporary/npm.log" 2>&1 && return
  rm -rf "$modules"
  say "npm could not install BullMQ: $(tail -3 "$temporary/npm.log")"
  return 1
}

# start_store PEER: sets `command` and `arguments`, and `server` if the peer has one.
start_store() {
  local name
  server=
  arguments=(--directory="$store_directory")
  # The servers are not slowed down.
  [[ -z $store_sync_us || $1 != beanstalkd && $1 != postgresql ]] || return 1
  case $1 in
    ours) name=store_timer_store ;;
    sqlite) name=store_bare_sqlite ;;
    append) name=store_bare_log ;;
    *) name=peers_$1_store ;;
  esac
  command=$(program "$name") || { say "$name is not built"; return 1; }
  case $1 in
    beanstalkd | postgresql) "start_$1" ;;
  esac
}

end_store() {
  [[ -z $server ]] || end_server "$server"
}

# PostgreSQL has a process for each client.
store_callers() {
  [[ $1 == postgresql ]] && echo 16 || echo 64
}

run_store_requests() {
  local peer few=$((store_requests / 10)) many
  for ((turn = 0; turn < short_runs; ++turn)); do
    for peer in ours "${store_peers[@]}"; do
      start_store "$peer" || continue
      many=$(store_callers "$peer")
      measure "$command" "${arguments[@]}" --row=schedule --n="$few" --callers=1
      # A synced write for each request: as many as for one caller take long enough.
      [[ $peer == beanstalkd || $peer == postgresql ]] || few=$store_requests
      measure "$command" "${arguments[@]}" --row=schedule --n="$few" --callers="$many"
      if [[ $peer != append ]]; then
        measure "$command" "${arguments[@]}" --row=cancel --n="$few" --callers="$many"
        measure "$command" "${arguments[@]}" --row=take --n="$few" --callers="$many"
      fi
      few=$((store_requests / 10))
      end_store
    done
  done
}

run_store_commits() {
  local peer
  for ((turn = 0; turn < long_runs; ++turn)); do
    for peer in ours sqlite append postgresql; do
      start_store "$peer" || continue
      measure_long "$command" "${arguments[@]}" --row=commits --group=10 \
        --seconds="$store_seconds"
      end_store
    done
  done
}

# The processes begin together and last equally long; a share is a part of all their timers.
run_store_share() {
  local peer processes begin_at seconds=$((store_seconds < 10 ? store_seconds : 10))
  for ((turn = 0; turn < long_runs; ++turn)); do
    for peer in ours sqlite; do
      start_store "$peer" || continue
      own_directory shared root
      processes=()
      begin_at=$(($(date +%s) + 3))
      : >"$temporary/shares"
      for ((i = 0; i < store_processes; ++i)); do
        timeout 120 "$command" "${arguments[@]}" --file="$directory/timers.db" --row=share \
          --process="$i" --begin-at="$begin_at" --seconds="$seconds" >>"$temporary/shares" &
        processes+=($!)
      done
      for process in "${processes[@]}"; do
        wait "$process" || say "failed ($?): a process of store_share, $peer"
      done
      cat "$temporary/shares" >>"$raw"
      awk -v peer="$peer" -v seconds="$seconds" -v processes="$store_processes" '
        {
          for (i = 1; i <= NF; ++i) { split($i, pair, "="); have[pair[1]] = pair[2] }
          total += have["count"]
          if (NR == 1 || have["count"] < least) least = have["count"]
          if (have["count"] > most) most = have["count"]
          if (have["longest_ms"] > longest) longest = have["longest_ms"]
        }
        END {
          if (NR == processes && total > 0)
            printf "row=store_share peer=%s longest_ms=%s least_share=%.1f most_share=%.1f per_s=%.0f\n",
              peer, longest, 100 * least / total, 100 * most / total, 10 * total / seconds
        }' "$temporary/shares" >>"$raw"
    done
  done
}

# copy_store NAME: a copy of the store of that name, in `file`.
copy_store() {
  own_directory copy root
  cp -a "$store_directory/$1/." "$directory"
  file=$directory/timers.db
  sync "$file"
}

# fill_store NAME N DUE OPTION...
fill_store() {
  own_directory "$1" root
  measure_long "$large" --row=fill --file="$directory/timers.db" --n="$2" --due="$3" "${@:4}"
}

run_store_large() {
  local large directory file n few=$((store_timers / 10)) seconds=10
  ((store_seconds < seconds)) && seconds=$store_seconds
  large=$(program store_large_store) || { say "store_large_store is not built"; return; }
  fill_store few "$few" later
  fill_store many "$store_timers" later
  fill_store past "$store_timers" past
  for ((turn = 0; turn < long_runs; ++turn)); do
    for n in "$few" "$store_timers"; do
      copy_store "$([[ $n == "$few" ]] && echo few || echo many)"
      measure "$large" --row=lateness --file="$file" --n="$n" --seconds="$seconds"
    done
    copy_store past
    # Quiet, as the shell says that a process was killed.
    { timeout 120 "$large" --row=crash --file="$file"; } 2>/dev/null
    measure "$large" --row=overdue --file="$file" --n="$store_timers"
  done
}

run_store_owned() {
  local large directory file row seconds=10 many=$((4 * store_requests)) ours options
  ((store_seconds < seconds)) && seconds=$store_seconds
  ours=$(program store_timer_store) && large=$(program store_large_store) ||
    { say "the store's programs are not built"; return; }
  for ((turn = 0; turn < short_runs; ++turn)); do
    for row in schedule cancel take; do
      options=(--prefix=owned --directory="$store_directory" --row="$row" --n="$many" --callers=256)
      measure "$ours" "${options[@]}" --layout=owned
      measure "$ours" "${options[@]}" --peer=shared
      measure_program 1 store_bare_sqlite "${options[@]}"
    done
  done
  options=(--prefix=owned --layout=owned)
  fill_store many "$store_timers" later "${options[@]}"
  fill_store past "$store_timers" past "${options[@]}"
  for ((turn = 0; turn < long_runs; ++turn)); do
    copy_store many
    measure "$large" "${options[@]}" --row=lateness --file="$file" --n="$store_timers" \
      --seconds="$seconds"
    copy_store past
    { timeout 120 "$large" "${options[@]}" --row=crash --file="$file"; } 2>/dev/null
    measure "$large" "${options[@]}" --row=overdue --file="$file" --n="$store_timers"
  done
}

ask_redis() {
  redis-cli -s "$socket" "$@"
}

redis_bytes() {
  ask_redis INFO memory | tr -d '\r' | sed -n 's/^used_memory://p'
}

# redis_command PEER ROW: sets `command`; false if that peer is not there or lacks the row.
redis_command() {
  local url="redis+unix://$socket?namespace=bench&shards=1" clients
  clients=$(($(nproc) > 1 ? 1 : 0))-$(($(nproc) - 1))
  case $1-$2 in
    ours-lateness) command=("$(program store_large_store)" --file="$url") ;;
    remembered_0-lateness) return 1 ;;
    ours-*) command=("$(program store_timer_store)" --file="$url") ;;
    remembered_0-*) command=("$(program store_timer_store)" --file="$url" --remembered=0) ;;
    bare-*) command=("$(program peers_redis_bare_store)" --socket="$socket") ;;
    bullmq-*)
      install_bullmq || return 1
      command=(node "$here/peers/bullmq_store.mjs" --modules="$modules" --socket="$socket")
      ;;
  esac
  [[ -n ${command[0]} ]] || { say "the program of $1 is not built"; return 1; }
  command=(taskset -c "$clients" "${command[@]}" --prefix=redis --peer="$1" --server="$server"
    --row="$2" --directory="$store_directory")
}

# Each row begins with an empty server, except that those that are due are stored beside others.
run_store_redis() {
  local directory socket modules command before peer row n=$((2 * store_requests)) seconds=10
  local -x LD_PRELOAD=
  ((store_seconds < seconds)) && seconds=$store_seconds
  start_redis || return
  for ((turn = 0; turn < long_runs; ++turn)); do
    for row in cancel take schedule; do
      for peer in ours "${redis_peers[@]}"; do
        redis_command "$peer" "$row" || continue
        ask_redis FLUSHALL SYNC >/dev/null
        before=$(redis_bytes)
        measure_long "${command[@]}" --n="$n" --callers=256
        [[ $row == schedule ]] || continue
        echo "row=redis_bytes peer=$peer n=$n" \
          "bytes=$((($(redis_bytes) - before) / n))" >>"$raw"
        redis_command "$peer" lateness || continue
        measure "${command[@]}" --n="$n" --seconds="$seconds"
      done
    done
  done
  end_server "$server"
}

# A server with a log is killed, and started again with all timers overdue. Its own start ends with its
# first answer.
run_store_redis_restart() {
  local directory socket large url begin_ms LD_PRELOAD=
  large=$(program store_large_store) || { say "store_large_store is not built"; return; }
  for ((turn = 0; turn < long_runs; ++turn)); do
    start_redis yes || return
    url="redis+unix://$socket?namespace=bench&shards=1"
    measure_long "$large" --row=fill --file="$url" --prefix=redis --n="$store_timers" --due=past
    # The latest second of its log is written.
    until [[ $(ask_redis INFO persistence | tr -d '\r') == *aof_pending_bio_fsync:0* ]]; do sleep 0.1; done
    { kill -KILL "$server"; end_server "$server"; } 2>/dev/null
    begin_ms=$(date +%s%3N)
    launch_redis yes || return
    until [[ $(ask_redis PING 2>&1) == PONG ]]; do sleep 0.01; done
    echo "row=redis_start peer=ours n=$store_timers start_ms=$(($(date +%s%3N) - begin_ms))" >>"$raw"
    measure "$large" --row=overdue --file="$url" --prefix=redis --n="$store_timers"
    end_server "$server"
  done
}

run_store() {
  local part place=${BENCH_STORE_DIRECTORY:-/var/tmp} library
  if [[ -n $store_sync_us ]]; then
    library=$(program libeven_disk.so) || { say "even_disk is not built"; return; }
    export EVEN_DISK_US=$store_sync_us
    place=${BENCH_STORE_DIRECTORY:-/dev/shm}
  fi
  store_directory=$(mktemp -d "$place/workflow-bench-XXXXXX")
  chmod 711 "$store_directory"
  for part in $store_parts; do
    LD_PRELOAD=${library:-} "run_store_$part"
  done
}
