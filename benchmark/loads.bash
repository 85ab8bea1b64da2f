# shellcheck shell=bash
# Sourced by run: loads a server that servers.bash has started, and notes what it did meanwhile. The
# client has the other core to itself. Needs $server, $worker, $port, $raw and $temporary.
# shellcheck disable=SC2154  # those come from run

# CPU of the server so far, user and system, in clock ticks.
server_ticks() {
  local stat fields
  stat=$(<"/proc/$worker/stat")
  read -r -a fields <<<"${stat##*) }"
  echo $((fields[11] + fields[12]))
}

run_wrk() {
  local conf=
  [[ $1 == https:* ]] && conf=$temporary/openssl.cnf
  OPENSSL_CONF=$conf taskset -c 1 wrk -t1 "${@:2}" "$1"
}

# load_server ROW PEER CONNECTIONS SECONDS URL DELAY_MS SIZE
load_server() {
  local row=$1 peer=$2 connections=$3 seconds=$4 url=$5 delay=${6:-0} size=${7:-0} before after
  local out="$temporary/wrk.out"
  run_wrk "$url" -c"$connections" -d1s >/dev/null
  before=$(server_ticks)
  run_wrk "$url" -c"$connections" -d"$seconds"s --latency >"$out"
  after=$(server_ticks)
  awk -v row="$row" -v peer="$peer" -v connections="$connections" -v delay="$delay" -v size="$size" \
    -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" '
    $1 == "99%" {
      unit = $2; sub(/^[0-9.]+/, "", unit)
      p99 = $2 * (unit == "us" ? 0.001 : unit == "ms" ? 1 : 1000)
    }
    $2 == "requests" && $3 == "in" { requests = $1 }
    /^Requests\/sec:/ { per_s = $2 }
    /Non-2xx|Socket errors/ { print "benchmark: " peer ": " $0 >"/dev/stderr" }
    END {
      if (requests == 0) exit
      cpu = ticks * 1e6 / hz / requests
      printf "row=%s peer=%s connections=%d size=%d cpu_us=%.4g per_s=%.6g p99_ms=%.4g over_ms=%.4g",
        row, peer, connections, size, cpu, per_s, p99, p99 - delay
      if (size > 0)
        printf " mb_per_s=%.5g cpu_us_per_mb=%.5g", per_s * size / 1e6, cpu * 1e6 / size
      print ""
    }' "$out" >>"$raw"
}

# load_handshakes PEER new|resumed SECONDS
load_handshakes() {
  local peer=$1 mode=$2 seconds=$3 before after client out="$temporary/handshakes.out"
  client=$(program http_handshakes) || { say "http_handshakes is not built"; return; }
  before=$(server_ticks)
  if ! taskset -c 1 timeout 60 "$client" --port="$port" --mode="$mode" --seconds="$seconds" \
    >"$out"; then
    say "handshakes failed: $peer"
    return
  fi
  after=$(server_ticks)
  awk -v peer="$peer" -v mode="$mode" -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" '
    {
      split($1, connections, "="); split($2, rate, "=")
      printf "row=handshakes peer=%s mode=%s cpu_us=%.4g per_s=%.5g\n", peer, mode,
        ticks * 1e6 / hz / connections[2], rate[2]
    }' "$out" >>"$raw"
}

# How often its threads have gone to sleep so far.
server_sleeps() {
  cat /proc/"$worker"/task/*/status |
    awk '$1 == "voluntary_ctxt_switches:" { n += $2 } END { print n }'
}

server_allocations() {
  if [[ -s $temporary/allocations ]]; then
    od -An -t u8 "$temporary/allocations" | tr -d ' '
  else
    echo 0
  fi
}

# Counts the server's system calls until stop_counting, by the kernel's tracepoints where perf may
# use them, else by strace, which slows it down.
start_counting() {
  if perf stat -e raw_syscalls:sys_enter true >/dev/null 2>&1; then
    perf stat -x, -o "$temporary/calls" -p "$worker" -e raw_syscalls:sys_enter \
      -e syscalls:sys_enter_epoll_wait -e syscalls:sys_enter_epoll_pwait \
      -e syscalls:sys_enter_epoll_pwait2 &
  else
    strace -f -c -U calls,name -o "$temporary/calls" -p "$worker" 2>/dev/null &
  fi
  counter=$!
  servers+=("$counter")
  sleep 0.5
}

# Sets `calls`, and `waits` of them for events.
stop_counting() {
  kill -INT "$counter"
  wait "$counter" 2>/dev/null
  calls=$(awk -F'[, ]+' '/raw_syscalls:sys_enter/ { print $1 } $3 == "total" { print $2 }' \
    "$temporary/calls")
  waits=$(awk -F'[, ]+' '
    /sys_enter_epoll/ { n += $1 }
    $3 ~ /^epoll_p?wait2?$/ { n += $2 }
    END { print n + 0 }' "$temporary/calls")
}

# count_server ROW PEER CONNECTIONS SECONDS URL: what the server does for one request.
count_server() {
  local row=$1 peer=$2 connections=$3 seconds=$4 url=$5 out="$temporary/wrk.out"
  local sleeps allocations requests
  run_wrk "$url" -c"$connections" -d1s >/dev/null
  start_counting
  sleeps=$(server_sleeps) allocations=$(server_allocations)
  run_wrk "$url" -c"$connections" -d"$seconds"s >"$out"
  sleeps=$(($(server_sleeps) - sleeps)) allocations=$(($(server_allocations) - allocations))
  stop_counting
  requests=$(awk '$2 == "requests" && $3 == "in" { print $1 }' "$out")
  awk -v row="$row" -v peer="$peer" -v connections="$connections" -v n="${requests:-0}" \
    -v calls="$calls" -v waits="$waits" -v sleeps="$sleeps" -v allocations="$allocations" 'BEGIN {
      if (n == 0) exit
      printf "row=%s peer=%s connections=%d calls=%.4g waits=%.4g sleeps=%.4g", row, peer,
        connections, calls / n, waits / n, sleeps / n
      if (peer != "go") printf " allocations=%.4g", allocations / n
      print ""
    }' >>"$raw"
}
