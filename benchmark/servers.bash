# shellcheck shell=bash
# Sourced by run: starts the HTTP servers, ours and the peers'. Needs say, program, end_server,
# $temporary and the array of servers to be ended.
# shellcheck disable=SC2154  # those come from run

free_port() {
  local port
  while true; do
    port=$((20000 + RANDOM % 12000)) # below the range that outgoing connections take
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

# P-256 for all; made once.
make_certificate() {
  [[ -s $temporary/cert.pem ]] && return
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -keyout "$temporary/key.pem" -out "$temporary/cert.pem" 2>/dev/null
  # What wrk offers: the servers would choose different ciphers.
  cat >"$temporary/openssl.cnf" <<'END'
openssl_conf = default
[default]
ssl_conf = ssl
[ssl]
system_default = client
[client]
MinProtocol = TLSv1.3
Ciphersuites = TLS_AES_128_GCM_SHA256
Groups = X25519
END
}

# start_server PEER DELAY_MS [SIZE [tls]]: a small reply, or one of SIZE bytes. Sets `server` (to be
# ended), `worker` (whose CPU and memory count), `port`, `url` and `delayed_url`. PRELOAD: a library
# to be loaded into it.
start_server() {
  local peer=$1 delay=$2 size=${3:-0} tls=${4:-}
  local path=/
  if [[ $peer == nginx ]]; then
    ((size > 0)) && path=/file
    start_nginx "$delay" "$size" "$tls" || return 1
  else
    start_program "$@" || return 1
  fi
  url="http${tls:+s}://127.0.0.1:$port$path"
  delayed_url="http${tls:+s}://127.0.0.1:$port/delay"
}

start_program() {
  local peer=$1 delay=$2 size=${3:-0} tls=${4:-} out="$temporary/server.out" executable name
  local arguments=(--delay-ms="$delay" --size="$size")
  case $peer in
    ours) name=http_server ;;
    bare) name=http_bare_epoll ;;
    go) name=peers_go_http ;;
  esac
  executable=$(program "$name") || { say "$name is not built"; return 1; }
  if [[ -n $tls ]]; then
    make_certificate
    arguments+=(--cert="$temporary/cert.pem" --key="$temporary/key.pem")
  fi
  : >"$out"
  LD_PRELOAD=${PRELOAD:-} taskset -c 0 "$executable" "${arguments[@]}" >"$out" &
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
# write_nginx_config PORT DELAY_MS TLS
write_nginx_config() {
  local delay_seconds ssl=
  if [[ -n $3 ]]; then
    ssl="ssl_certificate $temporary/cert.pem; ssl_certificate_key $temporary/key.pem;
    ssl_protocols TLSv1.2 TLSv1.3;"
  fi
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
  open_file_cache max=10;
  client_body_temp_path $temporary/nginx_body;
  proxy_temp_path $temporary/nginx_proxy;
  fastcgi_temp_path $temporary/nginx_fastcgi;
  uwsgi_temp_path $temporary/nginx_uwsgi;
  scgi_temp_path $temporary/nginx_scgi;
  server {
    listen 127.0.0.1:$1 backlog=4096${3:+ ssl};
    $ssl
    location / { return 200 'hello, world'; }
    location = /file { alias $temporary/file; }
    location /delay { echo_sleep $delay_seconds; echo -n 'hello, world'; }
  }
}
END
}

# start_nginx DELAY_MS SIZE TLS
start_nginx() {
  command -v nginx >/dev/null || { say "nginx is not installed"; return 1; }
  port=$(free_port)
  [[ -n $3 ]] && make_certificate
  head -c "$2" /dev/zero | tr '\0' x >"$temporary/file"
  write_nginx_config "$port" "$1" "$3" >"$temporary/nginx.conf"
  LD_PRELOAD=${PRELOAD:-} taskset -c 0 nginx -p "$temporary" -c "$temporary/nginx.conf" 2>>"$temporary/nginx.err" &
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
