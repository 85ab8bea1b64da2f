# shellcheck shell=bash
# Sourced by run: turns the raw lines (in the file $raw) into the markdown tables, one function
# table_ROW per row, with the budgets. Needs the arrays of peers and $delay_ms too.
# shellcheck disable=SC2154  # those come from run

# value PEER KEY FILTER...: the median of KEY over the raw lines that hold every FILTER (key=value).
value() {
  local peer=$1 key=$2
  shift 2
  awk -v key="$key" -v wanted="peer=$peer $*" '
    BEGIN { count = split(wanted, filters, " ") }
    {
      split("", have)
      for (i = 1; i <= NF; ++i) have[$i] = 1
      for (i = 1; i <= count; ++i) if (!(filters[i] in have)) next
      for (i = 1; i <= NF; ++i) if (index($i, key "=") == 1) print substr($i, length(key) + 2)
    }' "$raw" | sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'
}

number() {
  if [[ -z $1 ]]; then
    echo "–"
    return
  fi
  awk -v v="$1" 'BEGIN {
    a = v < 0 ? -v : v
    if (a >= 1e6) printf "%.2fM", v / 1e6
    else printf((a >= 100 ? "%.0f" : a >= 10 ? "%.1f" : "%.2f"), v)
  }'
}

# table TITLE PEER...: begins a table with these columns.
table() {
  local title=$1 rule="|---|---:|"
  shift
  columns=("$@")
  rivals="$*"
  echo
  printf '| %s | ours |' "$title"
  for peer in "${columns[@]}"; do printf ' %s |' "${peer/_/ }"; rule+="---:|"; done
  printf ' ratio | budget | met |\n%s---:|---|---|\n' "$rule"
}

# best LOW|HIGH VALUE...: the best of the values, empty ones left out.
best() {
  local flags=(-g)
  [[ $1 == high ]] && flags+=(-r)
  shift
  printf '%s\n' "$@" | grep . | sort "${flags[@]}" | head -1
}

# line TITLE KEY "FILTER..." "BUDGET" CONDITION...: one line of the table.
# A condition is le:REFERENCE:FACTOR or ge:REFERENCE:FACTOR; REFERENCE is a peer, `best` of $rivals, which
# are the peers in the table if nothing else is said, or `abs` for FACTOR itself. The ratio shown is to the first condition's peer. A line
# without a budget has a condition that always holds, to say which peer the ratio is to. $subject is whose
# figures are judged instead of ours.
line() {
  local title=$1 key=$2 filters=$3 budget=$4
  shift 4
  local order=low ours measured values=() reference ratio="–" met="–" condition
  [[ ${1:-} == ge:* ]] && order=high
  # shellcheck disable=SC2086  # filters are words
  ours=$(value "${subject:-ours}" "$key" $filters)
  printf '| %s | %s |' "$title" "$(number "$ours")"
  for peer in "${columns[@]}"; do
    # shellcheck disable=SC2086
    measured=$(value "$peer" "$key" $filters)
    [[ " $rivals " == *" $peer "* ]] && values+=("$measured")
    printf ' %s |' "$(number "$measured")"
  done
  for condition in "$@"; do
    IFS=: read -r operator name factor <<<"$condition"
    # shellcheck disable=SC2086
    case $name in
      abs) reference=1 ;;
      best) reference=$(best "$order" "${values[@]}") ;;
      *) reference=$(value "$name" "$key" $filters) ;;
    esac
    if [[ -n $ours && -n $reference ]]; then
      [[ $name != abs && $ratio == "–" ]] &&
        ratio=$(awk -v a="$ours" -v b="$reference" 'BEGIN { if (b != 0) printf "%.2f", a / b }')
      if awk -v a="$ours" -v b="$reference" -v f="$factor" -v op="$operator" \
        'BEGIN { exit !(op == "le" ? a <= b * f : a >= b * f) }'; then
        [[ $met == "–" ]] && met=yes
      else
        met=no
      fi
    fi
  done
  [[ -z $budget ]] && met=
  printf ' %s | %s | %s |\n' "$ratio" "$budget" "$met"
}

table_named() {
  table "named timers" "${named_peers[@]}"
  for n in 100000 1000000; do
    line "create + start, $n outstanding, ns" ns "row=named_create_start n=$n" \
      "≤ 0.6 × best" le:best:0.6
  done
  for n in 100000 1000000; do
    line "create, cancel by name, callback, $n outstanding, CPU µs" cpu_us \
      "row=named_create_cancel n=$n" "≤ best" le:best:1
    line "the same, each cancelled as soon as created, CPU µs" cpu_at_once_us \
      "row=named_create_cancel n=$n" "≤ best" le:best:1
  done
  for n in 100000 1000000; do
    line "create $n, cancel them in random order, callbacks, CPU µs each" cpu_us \
      "row=named_random n=$n" "≤ best" le:best:1
  done
}

table_replace() {
  table "replace one of 100,000, rounds per second" "${named_peers[@]}"
  line "1 thread" per_s "row=named_replace threads=1" "≥ 1.2 × best" ge:best:1.2
  local one
  one=$(value ours per_s row=named_replace threads=1)
  line "2 threads" per_s "row=named_replace threads=2" "≥ 1.2 × best, ≥ 1 thread" \
    ge:best:1.2 "ge:abs:${one:-0}"
  line "1 thread, CPU µs per round" cpu_us "row=named_replace threads=1" "≤ best" le:best:1
  line "2 threads, CPU µs per round" cpu_us "row=named_replace threads=2" "≤ best" le:best:1
}

table_memory() {
  table "memory per outstanding timer (1,000,000), bytes" "${named_peers[@]}"
  line "unnamed" bytes "row=memory_unnamed" "≤ 144" le:abs:144 le:best:1e9
  line "named" bytes "row=memory_named" "≤ 260" le:abs:260 le:best:1e9
}

table_cancel() {
  table "one call cancels 1,000,000 timers of one name"
  line "the call, ms" call_ms "row=cancel_million" "ends" le:abs:1e9
  line "until the last callback, ms" callbacks_ms "row=cancel_million" "" le:abs:1e9
  line "operation on another name meanwhile, p50 µs" other_p50_us "row=cancel_million" "" \
    le:abs:1e9
  line "the same, p99 µs" other_p99_us "row=cancel_million" "" le:abs:1e9
  line "the same, max µs" other_max_us "row=cancel_million" "< 1000" le:abs:1000
  line "the same without the time it had no core, max µs" other_own_max_us \
    "row=cancel_million" "" le:abs:1e9
  line "the same before the call, max µs" idle_max_us "row=cancel_million" "" le:abs:1e9
}

table_cancel_each() {
  table "100,000 timers of one name, a call cancels one of them" "${named_peers[@]}"
  line "the call, ns" call_ns "row=cancel_each n=100000" "" le:best:1e9
  line "until the last callback, ns each" wall_ns "row=cancel_each n=100000" "" le:best:1e9
  line "the same, CPU ns" cpu_ns "row=cancel_each n=100000" "" le:best:1e9
}

table_blocked() {
  local place how
  table "an item waits behind a callback of 50 ms, while other threads are free"
  for place in share queue go leader poller branches; do
    for how in sleeps computes; do
      line "$place, it $how, p50 µs" p50_us "row=blocked_${place}_$how" "" le:abs:1e9
      line "$place, it $how, max µs" max_us "row=blocked_${place}_$how" "" le:abs:1e9
    done
  done
  line "all threads are busy: until one is added, p50 µs" p50_us "row=blocked_all_sleeps" "" le:abs:1e9
}

table_list() {
  table "listing 1,000,000 timers of as many names"
  line "the call, ms" call_ms "row=list_million" "" le:abs:1e9
  line "operation on another name meanwhile, p99 µs" other_p99_us "row=list_million" "" le:abs:1e9
  line "the same, max µs" other_max_us "row=list_million" "" le:abs:1e9
  line "the same without the time it had no core, max µs" other_own_max_us "row=list_million" \
    "< 1000" le:abs:1000
  line "the same before the call, max µs" idle_max_us "row=list_million" "" le:abs:1e9
}

table_lateness() {
  table "lateness at the callback, timers due within 2 s" "${timer_peers[@]}"
  rivals="asio asio_direct libevent"
  line "100,000: p50 µs" p50_us "row=lateness n=100000" "" le:best:1e9
  line "100,000: p99 µs" p99_us "row=lateness n=100000" "≤ 1.2 × asio, libevent" le:best:1.2
  rivals="${columns[*]}"
  line "100,000: max µs" max_us "row=lateness n=100000" "" le:best:1e9
  line "100,000: min µs" min_us "row=lateness n=100000" "≥ 0" ge:abs:0
  line "100,000: CPU s" cpu_s "row=lateness n=100000" "" le:best:1e9
  line "1,000,000: p50 µs" p50_us "row=lateness n=1000000" "" le:best:1e9
  line "1,000,000: p99 µs" p99_us "row=lateness n=1000000" "≤ 3000, ≤ best" le:abs:3000 le:best:1
  line "1,000,000: max µs" max_us "row=lateness n=1000000" "" le:best:1e9
  line "1,000,000: min µs" min_us "row=lateness n=1000000" "≥ 0" ge:abs:0
  line "1,000,000: CPU s" cpu_s "row=lateness n=1000000" "≤ 1.2" le:abs:1.2 le:best:1e9
}

table_stalls() {
  local n title filters
  table "lateness at the callback, timers due within 2 s, µs" "${stall_peers[@]}"
  rivals="asio asio_direct libevent"
  for n in "${stall_counts[@]}"; do
    title="$n timers"
    filters="row=stalls n=$n"
    line "$title: p50" p50_us "$filters" "" le:best:1e9
    case $n in
      100000) line "$title: p99" p99_us "$filters" "≤ 1.2 × asio, libevent" le:best:1.2 ;;
      1000000) line "$title: p99" p99_us "$filters" "ahead of all" le:best:1 le:timerfd:1 ;;
      *) line "$title: p99" p99_us "$filters" "" le:best:1e9 ;;
    esac
    line "$title: p99.9" p999_us "$filters" "" le:best:1e9
    line "$title: max" max_us "$filters" "" le:best:1e9
  done
  bursts
}

# Of each peer and number of timers the bursts of the worst run, which is that with the highest
# p99.9: the five longest, in the order in which they came.
bursts() {
  printf '\n| worst run | p99.9, µs | bursts | timers in them | the longest: when, timers late, for how long |\n'
  echo '|---|---:|---:|---:|---|'
  local n peer
  for n in "${stall_counts[@]}"; do
    for peer in ours "${stall_peers[@]}"; do
      awk -v n="$n" -v peer="$peer" '
        { split("", have); for (i = 1; i <= NF; ++i) { split($i, pair, "="); have[pair[1]] = pair[2] } }
        have["n"] != n || have["peer"] != peer { next }
        have["row"] == "stalls" {
          current = have["p999_us"] + 0 > worst + 0
          if (current) { worst = have["p999_us"]; count = 0; timers = 0 }
        }
        have["row"] == "burst" && current {
          timers += have["timers"]
          ++count
          at[count] = have["at_ms"]; many[count] = have["timers"]; long[count] = have["for_ms"]
        }
        END {
          if (worst == "") exit
          for (shown = 0; shown < 5 && shown < count; ++shown) {
            best = 0
            for (i = 1; i <= count; ++i) if (!(i in listed) && (!best || long[i] + 0 > long[best] + 0)) best = i
            listed[best] = 1
          }
          text = ""
          for (i = 1; i <= count; ++i) if (i in listed) {
            text = text (text == "" ? "" : "; ") sprintf("%.0f ms: %d, %.2g ms", at[i], many[i], long[i])
          }
          name = peer
          sub("_", " ", name)
          printf "| %s, %s | %.0f | %d | %d | %s |\n", n, name, worst, count, timers, text
        }' "$raw"
    done
  done
}

table_reschedule() {
  table "rescheduling one of 200,000 outstanding timers, ns"
  line "later, by handle, in the order of creation" ns "row=reschedule_in_order" "≤ 100" le:abs:100
  line "later, by handle" ns "row=reschedule_later" "≤ 100" le:abs:100
  line "to any time, by handle" ns "row=reschedule_any" "≤ 400" le:abs:400
  line "later, by name" ns "row=reschedule_named" "" le:abs:1e9
  line "CPU of the round that finds it put off" cpu_ns "row=reschedule_put_off" "" le:abs:1e9
}

table_manual() {
  table "a deadline on the manual clock, µs"
  line "ticks of a periodic timer, one call" us "row=manual_ticks" "≤ 14" le:abs:14
  line "the same, CPU" cpu_us "row=manual_ticks" "" le:abs:1e9
  line "timers of their own, one call" us "row=manual_timers" "≤ 14" le:abs:14
  line "the same, CPU" cpu_us "row=manual_timers" "" le:abs:1e9
  line "a call for each timer" us "row=manual_calls" "" le:abs:1e9
  line "the same, CPU" cpu_us "row=manual_calls" "" le:abs:1e9
}

table_allocations() {
  local -r kinds=("timer timer" "named named timer" "long_name named timer, a long name"
    "go go task" "counter counter" "series series of an empty task"
    "step step of a series, an empty task" "graph node of a graph, a go task")
  local kind
  table "allocations from the C library for each"
  for kind in "${kinds[@]}"; do
    line "${kind#* }" allocations "row=allocations_${kind%% *}" "" le:abs:1e9
  done
  table "blocks of memory for each, with those that the library keeps"
  for kind in "${kinds[@]}"; do
    line "${kind#* }" blocks "row=allocations_${kind%% *}" "" le:abs:1e9
  done
}

table_series() {
  table "a step of a series, ns"
  line "1,000,000 empty tasks, queued before the start: create and run" ns "row=series_queued" "" le:abs:1e9
  line "the same, run" run_ns "row=series_queued" "≤ 25" le:abs:25
  line "a series that extends itself by empty tasks: create and run" ns "row=series_self_extending" "" le:abs:1e9
  line "1,000,000 counters, queued before the start: create and run" ns "row=counters_queued" "≤ 80" le:abs:80
  line "a series that extends itself by counters: create and run" ns "row=counters_self_extending" "≤ 39" le:abs:39
}

table_scope() {
  local outside
  outside=$(value ours ns row=scope_none)
  table "scopes"
  line "a task that enters a scope and leaves it at once, ns" ns "row=scope_step" \
    "≤ $(number "$outside") (in no scope) + 20" \
    "le:abs:$(awk -v task="${outside:-0}" 'BEGIN { print task + 20 }')"
  for kind in timers counters; do
    line "cancel of 100,000 $kind that wait in one, ns each: the call" call_ns "row=scope_$kind" \
      "≤ 500" le:abs:500
    line "the same, until the last was called back" ns "row=scope_$kind" "" le:abs:1e9
  done
  line "longest time to end one of 20,000 by its name while their scope is cancelled, µs" longest_us \
    "row=scope_leave" "≤ 100" le:abs:100
  line "the same before the cancel, µs" before_us "row=scope_leave" "" le:abs:1e9
}

table_due() {
  table "a timer without a delay, from its start to its callback, ns" "${timer_peers[@]}"
  line "each started in the callback of the one before" ns "row=due_chain" "≤ 1500" le:abs:1500 \
    le:best:1e9
  line "the same, CPU" cpu_ns "row=due_chain" "" le:best:1e9
  line "1,000,000 in a series, queued before its start" ns "row=due_queued" "≤ 1500" le:abs:1500
  line "the same, CPU" cpu_ns "row=due_queued" "" le:abs:1e9
  line "in a series that extends itself 1,000,000 times" ns "row=due_self_extending" "≤ 1500" \
    le:abs:1500
  line "the same, CPU" cpu_ns "row=due_self_extending" "" le:abs:1e9
}

table_go() {
  table "a go task that does next to nothing, 1,000,000 started by one thread" tbb
  line "start, ns of that thread" start_ns "row=go" "≤ oneTBB" le:tbb:1
  line "start, run and callback, CPU ns of the process" cpu_ns "row=go" "≤ oneTBB" \
    le:tbb:1
}

table_graph() {
  table "graph of 1000 nodes in 20 layers, 4 arrows to each, µs" tbb
  # The budget is about nodes that are go tasks.
  subject=ours_go line "empty go tasks: build, run and free" life_us "row=graph body_us=0" "≤ oneTBB" le:tbb:1
  subject=ours_go line "empty go tasks: run" run_us "row=graph body_us=0" "≤ oneTBB" le:tbb:1
  table "the same with nodes that work in their callbacks, µs" tbb ours_go
  line "empty nodes: build, run and free" life_us "row=graph body_us=0" "" le:tbb:1e9
  line "the same, CPU" life_cpu_us "row=graph body_us=0" "" le:tbb:1e9
  line "empty nodes: run" run_us "row=graph body_us=0" "" le:tbb:1e9
  line "the same, CPU" run_cpu_us "row=graph body_us=0" "" le:tbb:1e9
  for body in 1 10; do
    line "nodes of $body µs: build, run and free" life_us "row=graph body_us=$body" "" le:tbb:1e9
    line "the same, CPU" life_cpu_us "row=graph body_us=$body" "" le:tbb:1e9
    line "nodes of $body µs: run" run_us "row=graph body_us=$body" "" le:tbb:1e9
    line "the same, CPU" run_cpu_us "row=graph body_us=$body" "" le:tbb:1e9
  done
}

table_coroutine() {
  local task
  task=$(value ours cpu_ns row=series_self_extending)
  table "coroutines, CPU ns" "${coroutine_peers[@]}"
  line "await of an empty task" cpu_ns "row=coroutine_empty" "≤ $(number "$task") (the task) + 60" \
    "le:abs:$(awk -v task="${task:-0}" 'BEGIN { print task + 60 }')" le:asio:1e9
  line "call of a coroutine" cpu_ns "row=coroutine_child" "" le:asio:1e9
  line "sleep without a delay" cpu_ns "row=coroutine_due" "≤ 1700" le:abs:1700 le:asio:1e9
  line "request and answer over loopback" cpu_ns "row=coroutine_ping" "" le:asio:1e9
  line "memory of one that sleeps, bytes" bytes "row=coroutine_memory" "≤ 320" le:abs:320 le:asio:1e9
}

# http_lines ROW "CONNECTIONS..." BUDGET CONDITION...
http_lines() {
  local row=$1 counts=$2 budget=$3 connections
  shift 3
  for connections in $counts; do
    line "$connections connections: server CPU µs per request" cpu_us \
      "row=$row connections=$connections" "$budget" "$@"
    line "$connections connections: requests per second" per_s \
      "row=$row connections=$connections" "" ge:nginx:0
  done
}

table_http() {
  table "HTTP small reply, server on one core" "${http_peers[@]}"
  http_lines http_small "64 1000" "≤ nginx, ≤ 1.2 × bare" le:nginx:1 le:bare:1.2
}

table_waiting() {
  table "the same while 10,000 other replies wait" "${http_peers[@]}"
  http_lines http_waiting "64 1000" "≤ nginx, ≤ 1.2 × bare" le:nginx:1 le:bare:1.2
}

table_delayed() {
  local connections
  table "HTTP delayed reply, server on one core" "${http_peers[@]}"
  for connections in 2000 10000; do
    local title="$connections connections, $((connections == 2000 ? delay_ms : 1000)) ms"
    local filters="row=http_delayed connections=$connections"
    line "$title: server CPU µs per reply" cpu_us "$filters" "≤ nginx" le:nginx:1
    line "$title: replies per second" per_s "$filters" "≥ nginx" ge:nginx:1
    line "$title: p99 - delay, ms" over_ms "$filters" "≤ 15" le:abs:15 le:nginx:1e9
  done
}

table_http_memory() {
  table "memory of a connection whose reply is delayed (10,000), bytes" "${http_peers[@]}"
  line "resident" bytes "row=http_memory" "≤ 4096" le:abs:4096 le:nginx:1e9
}

# count_lines TITLE FILTER
count_lines() {
  line "$1: system calls" calls "$2" "" le:nginx:1e9
  line "$1: of these, waits for events" waits "$2" "" le:nginx:1e9
  line "$1: times that a thread slept" sleeps "$2" "" le:nginx:1e9
  line "$1: allocations" allocations "$2" "" le:nginx:1e9
}

table_counts() {
  table "counts per request" "${http_peers[@]}"
  count_lines "small reply, 64 connections" "row=http_counts"
  count_lines "delayed reply, 2000 connections" "row=delayed_counts"
  count_lines "small reply over TLS, 64 connections" "row=https_counts"
}

table_https() {
  table "HTTPS small reply, server on one core" "${https_peers[@]}"
  http_lines https_small 64 "" le:nginx:1e9
}

table_handshakes() {
  local mode
  table "HTTPS connections with one request each, server on one core" "${https_peers[@]}"
  for mode in new resumed; do
    line "$mode sessions: server CPU µs per connection" cpu_us "row=handshakes mode=$mode" "" \
      le:nginx:1e9
    line "$mode sessions: connections per second" per_s "row=handshakes mode=$mode" "" ge:nginx:0
  done
}

table_bulk() {
  table "HTTPS bulk, 64 connections, server on one core" "${https_peers[@]}"
  local size title
  for size in 16384 1048576; do
    title="replies of $((size / 1024)) KiB"
    line "$title: server CPU µs per MB" cpu_us_per_mb "row=https_bulk size=$size" "" le:nginx:1e9
    line "$title: MB per second" mb_per_s "row=https_bulk size=$size" "" ge:nginx:0
  done
}

table_file() {
  local direct title
  table "reads of 4 KiB at random places of a file of 64 MiB" threads bare
  for direct in 1 0; do
    title=$([[ $direct == 1 ]] && echo "from the disk" || echo "from the page cache")
    if [[ $direct == 1 ]]; then
      line "$title, 64 at a time: per second" per_s "row=pread_together direct=1" \
        "≥ 1.5 × threads" ge:threads:1.5
    else
      line "$title, 64 at a time: per second" per_s "row=pread_together direct=0" "" ge:threads:0
    fi
    line "the same, CPU ns each" cpu_ns "row=pread_together direct=$direct" "" le:threads:1e9
    line "$title, one at a time: per second" per_s "row=pread_alone direct=$direct" "" ge:threads:0
    line "the same, CPU ns each" cpu_ns "row=pread_alone direct=$direct" "" le:threads:1e9
  done
}

table_store_requests() {
  local one="many=0" many="many=1" row
  table "timers on a disk, per second" "${store_peers[@]}"
  line "schedule, one caller" per_s "row=store_schedule $one" "≥ 0.9 × SQLite" ge:sqlite:0.9
  line "schedule, many callers" per_s "row=store_schedule $many" \
    "≥ 0.9 × SQLite, 1.5 × PostgreSQL, 6 × beanstalkd" ge:sqlite:0.9 ge:postgresql:1.5 \
    ge:beanstalkd:6
  row=$(value ours per_s row=store_schedule "$many")
  line "cancel by name, many callers" per_s "row=store_cancel $many" "≥ schedule" \
    "ge:abs:${row:-0}" ge:sqlite:0
  line "claim and acknowledge, empty handlers" per_s "row=store_take $many" "≥ 0.9 × SQLite" \
    ge:sqlite:0.9

  table "the same, CPU of the process, µs" sqlite
  line "schedule, one caller" cpu_us "row=store_schedule $one" "" le:sqlite:1e9
  line "schedule, many callers" cpu_us "row=store_schedule $many" "" le:sqlite:1e9
  line "cancel by name, many callers" cpu_us "row=store_cancel $many" "" le:sqlite:1e9
  line "claim and acknowledge" cpu_us "row=store_take $many" "" le:sqlite:1e9
}

table_store_commits() {
  table "ten timers at a time, for $store_seconds s" sqlite append postgresql
  line "until all are durable: p50 µs" p50_us row=store_commits "" le:sqlite:1e9
  line "the same, p99 µs" p99_us row=store_commits "" le:sqlite:1e9
  line "the same, max µs" max_us row=store_commits "" le:sqlite:1e9
  line "one commit of the store: p50 µs" p50_us "row=store_groups commits=1" "" le:abs:1e9
  line "the same, p99 µs" p99_us "row=store_groups commits=1" "≤ 2000" le:abs:2000
  line "the same, max µs" max_us "row=store_groups commits=1" "" le:abs:1e9
  line "largest size of the log, MB" log_mb row=store_commits "≤ 80" le:abs:80 le:sqlite:1e9
}

table_store_share() {
  table "four processes on one file, ten timers at a time" sqlite
  line "the longest wait, ms" longest_ms row=store_share "≤ 50" le:abs:50 le:sqlite:1e9
  line "the smallest share, %" least_share row=store_share "≥ 20" ge:abs:20 ge:sqlite:0
  line "the largest share, %" most_share row=store_share "≤ 30" le:abs:30 le:sqlite:1e9
  line "timers of all per second" per_s row=store_share "" ge:sqlite:0
}

table_store_large() {
  local n=$store_timers row
  table "$n timers in a store"
  line "bytes of the file for each" bytes "row=store_bytes n=$n" "≤ 150" le:abs:150
  line "lateness, 1,000 due per second: p50 µs" p50_us "row=store_lateness n=$n" "" le:abs:1e9
  line "the same, p99 µs" p99_us "row=store_lateness n=$n" "≤ 1500" le:abs:1500
  line "the same, max µs" max_us "row=store_lateness n=$n" "" le:abs:1e9
  line "the same, min µs" min_us "row=store_lateness n=$n" "≥ 0" ge:abs:0
  line "CPU for each that is due, µs" cpu_us "row=store_lateness n=$n" "" le:abs:1e9
  row=$(value ours resident_mb row=store_lateness "n=$((n / 10))")
  line "resident memory with a tenth of them, MB" resident_mb "row=store_lateness n=$((n / 10))" \
    "" le:abs:1e9
  line "resident memory, MB" resident_mb "row=store_lateness n=$n" "≤ 1.1 × that" \
    "le:abs:$(awk -v m="${row:-0}" 'BEGIN { print 1.1 * m }')"
  line "all overdue, after kill -9: open, ms" open_ms "row=store_after_kill n=$n" "" le:abs:1e9
  line "the same, until the first handler, ms" first_ms "row=store_after_kill n=$n" "≤ 150" \
    le:abs:150
  line "timers of 10 ms beside them: lateness p50 µs" p50_us "row=store_beside_overdue n=$n" "" \
    le:abs:1e9
  line "the same, p99 µs" p99_us "row=store_beside_overdue n=$n" "" le:abs:1e9
  line "the same, max µs" max_us "row=store_beside_overdue n=$n" "" le:abs:1e9
  line "overdue ones that begin meanwhile, per second" overdue_per_s \
    "row=store_beside_overdue n=$n" "" ge:abs:0
}

table_store_owned() {
  local n=$store_timers
  table "a store with one owner, 256 callers, per second" shared sqlite
  line "schedule" per_s "row=owned_schedule" "≥ 200,000" ge:abs:200000 ge:sqlite:0
  line "cancel by name" per_s "row=owned_cancel" "" ge:sqlite:0
  line "claim and acknowledge, empty handlers" per_s "row=owned_take" "≥ 100,000" \
    ge:abs:100000 ge:sqlite:0
  table "the same, CPU of the process, µs" shared sqlite
  line "schedule" cpu_us "row=owned_schedule" "" le:sqlite:1e9
  line "cancel by name" cpu_us "row=owned_cancel" "" le:sqlite:1e9
  line "claim and acknowledge" cpu_us "row=owned_take" "" le:sqlite:1e9

  table "$n timers in a store with one owner"
  line "bytes of the file for each" bytes "row=owned_bytes n=$n" "" le:abs:1e9
  line "resident memory, MB" resident_mb "row=owned_lateness n=$n" "" le:abs:1e9
  line "lateness, 1,000 due per second: p50 µs" p50_us "row=owned_lateness n=$n" "" le:abs:1e9
  line "the same, p99 µs" p99_us "row=owned_lateness n=$n" "≤ 300" le:abs:300
  line "the same, max µs" max_us "row=owned_lateness n=$n" "" le:abs:1e9
  line "CPU for each that is due, µs" cpu_us "row=owned_lateness n=$n" "" le:abs:1e9
  line "all overdue, after kill -9: open, ms" open_ms "row=owned_after_kill n=$n" "" le:abs:1e9
  line "the same, until the first handler, ms" first_ms "row=owned_after_kill n=$n" "" le:abs:1e9
}

table_store_redis() {
  table "timers in a Redis, 256 callers, per second" "${redis_peers[@]}"
  line "schedule" per_s row=redis_schedule "≥ 0.9 × bare, 2 × BullMQ" ge:bare:0.9 ge:bullmq:2
  line "cancel by name" per_s row=redis_cancel "≥ 0.9 × bare, 3 × BullMQ" ge:bare:0.9 ge:bullmq:3
  line "claim and acknowledge, empty handlers" per_s row=redis_take "≥ 0.9 × bare" ge:bare:0.9

  table "the same, CPU of the server, µs" "${redis_peers[@]}"
  for row in schedule cancel take; do
    line "$([[ $row == take ]] && echo "claim and acknowledge" || echo "$row")" server_us \
      "row=redis_$row" "≤ 1.1 × bare, 0.55 × BullMQ" le:bare:1.1 le:bullmq:0.55
  done

  table "the same, CPU of the clients, µs" "${redis_peers[@]}"
  line "schedule" cpu_us row=redis_schedule "" le:bare:1e9
  line "cancel by name" cpu_us row=redis_cancel "" le:bare:1e9
  line "claim and acknowledge" cpu_us row=redis_take "" le:bare:1e9

  table "stored in a Redis: $((2 * store_requests)) timers" "${redis_peers[@]}"
  line "memory of the server for each, bytes" bytes row=redis_bytes "≤ 280, 0.35 × BullMQ" \
    le:bullmq:0.35 le:abs:280
  line "lateness, 1,000 due per second: p50 µs" p50_us row=redis_lateness "" le:bare:1e9
  line "the same, p99 µs" p99_us row=redis_lateness "≤ 400" le:abs:400 le:bare:1e9
  line "the same, max µs" max_us row=redis_lateness "" le:bare:1e9
  line "CPU of the server for each that is due, µs" server_us row=redis_lateness "" le:bare:1e9
}

table_store_redis_restart() {
  local n=$store_timers
  table "$n timers in a Redis with a log, killed by kill -9"
  line "its own start, ms" start_ms row=redis_start "" le:abs:1e9
  line "then all overdue: open, ms" open_ms "row=redis_after_kill n=$n" "" le:abs:1e9
  line "the same, until the first handler, ms" first_ms "row=redis_after_kill n=$n" "≤ 50" le:abs:50
  line "timers of 10 ms beside them: lateness p99 µs" p99_us "row=redis_beside_overdue n=$n" "" \
    le:abs:1e9
  line "overdue ones that begin meanwhile, per second" overdue_per_s \
    "row=redis_beside_overdue n=$n" "" ge:abs:0
}

table_store() {
  local part
  for part in $store_parts; do
    "table_store_$part"
  done
}
