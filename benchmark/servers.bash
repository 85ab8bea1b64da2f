# shellcheck shell=bash
# Sourced by run: starts the HTTP servers, ours and the peers', and loads them. Needs say, program,
# end_server, $temporary, $raw, $delay_ms and the array of servers to be ended.
# shellcheck disable=SC2154  # those come from run

free_port() {
  local port
  while true; do
    port=$((20000 + RANDOM % 12000)) # below the range that outgoing connections take
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

# start_server PEER DELAY_MS: sets `server` (to be ended), `worker` (whose CPU and memory count),
# `port` and `path`.
start_server() {
  local peer=$1 delay=$2 out="$temporary/server.out"
  : >"$out"
  path=/
  if [[ $peer == nginx ]]; then
    start_nginx "$delay"
    return
  fi
  local name=http_server arguments=(--delay-ms="$delay")
  [[ $peer == bare ]] && name=http_bare_epoll arguments=()
  local executable
  executable=$(program "$name") || { say "$name is not built"; return 1; }
  taskset -c 0 "$executable" "${arguments[@]}" >"$out" &
  server=$! worker=$!
  servers+=("$server")
  for ((i = 0; i < 100; ++i)); do
    port=$(sed -n 's/^port=//p' "$out")
    [[ -n $port ]] && return 0
    sleep 0.05
  done
  say "$name did not start"
  end_server "$server"
  return 1
}

# One worker, logs off, connections and requests without practical limits: nginx at its best.
write_nginx_config() {
  local delay_seconds
  delay_seconds=$(awk "BEGIN { print $2 / 1000 }")
  cat <<END
daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid $temporary/nginx.pid;
error_log $temporary/nginx.log crit;
$([[ $(id -u) == 0 ]] && echo "user root;")
load_module /usr/lib/nginx/modules/ngx_http_echo_module.so;
events { worker_connections 16384; }
http {
  access_log off;
  default_type text/plain;
  keepalive_requests 1000000000;
  keepalive_timeout 60s;
  client_body_temp_path $temporary/nginx_body;
  proxy_temp_path $temporary/nginx_proxy;
  fastcgi_temp_path $temporary/nginx_fastcgi;
  uwsgi_temp_path $temporary/nginx_uwsgi;
  scgi_temp_path $temporary/nginx_scgi;
  server {
    listen 127.0.0.1:$1 backlog=4096;
    location / { return 200 'hello, world'; }
    location /delay { echo_sleep $delay_seconds; echo -n 'hello, world'; }
  }
}
END
}

start_nginx() {
  command -v nginx >/dev/null || { say "nginx is not installed"; return 1; }
  port=$(free_port)
  write_nginx_config "$port" "$1" >"$temporary/nginx.conf"
  (($1 > 0)) && path=/delay
  taskset -c 0 nginx -p "$temporary" -c "$temporary/nginx.conf" 2>>"$temporary/nginx.err" &
  server=$!
  servers+=("$server")
  for ((i = 0; i < 100; ++i)); do
    worker=$(ps -o pid= --ppid "$server" | tr -d ' ')
    [[ -n $worker ]] && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return 0
    sleep 0.05
  done
  say "nginx did not start: $(cat "$temporary/nginx.err")"
  end_server "$server"
  return 1
}

# CPU of the server so far, user and system, in clock ticks.
server_ticks() {
  local stat fields
  stat=$(<"/proc/$worker/stat")
  read -r -a fields <<<"${stat##*) }"
  echo $((fields[11] + fields[12]))
}

# load_server ROW PEER CONNECTIONS SECONDS: the client has the other core to itself.
load_server() {
  local row=$1 peer=$2 connections=$3 seconds=$4 before after
  local url="http://127.0.0.1:$port$path" out="$temporary/wrk.out"
  taskset -c 1 wrk -t1 -c"$connections" -d1s "$url" >/dev/null
  before=$(server_ticks)
  taskset -c 1 wrk -t1 -c"$connections" -d"$seconds"s --latency "$url" >"$out"
  after=$(server_ticks)
  awk -v row="$row" -v peer="$peer" -v connections="$connections" -v delay="$delay_ms" \
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
      printf "row=%s peer=%s connections=%d cpu_us=%.4g per_s=%.6g p99_ms=%.4g over_ms=%.4g\n",
        row, peer, connections, ticks * 1e6 / hz / requests, per_s, p99, p99 - delay
    }' "$out" >>"$raw"
}
