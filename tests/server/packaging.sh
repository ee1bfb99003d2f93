#!/bin/bash
# Checks the files of packaging/, which operators copy: their options, paths, series and packages exist.
source tests/cli/claims.bash
source tests/server/serve.bash

source tests/gpu/gpu.bash
PATH=$PATH:/usr/sbin # Debian's nginx

# A server without keys has no series of keys, and one without ranks none of ranks.
serve --in-process --api-key key --tensor-parallel-size 2
curl -sS -H 'x-api-key: key' "$url/metrics" > "$work/metrics-with-keys"
stop_server

# The server has a fake GPU, because a CPU has no series of devices.
program=$UNMASK
gpu_program gpu
UNMASK=$work/gpu/unmask
export $(grep -E '^UNMASK_(ALLOWED_HOSTS|TRUSTED_PROXIES)=' packaging/unmask.env)
serve --state-dir "$work/state" --device cuda
unset UNMASK_ALLOWED_HOSTS UNMASK_TRUSTED_PROXIES
UNMASK=$program
curl -sS "$url/metrics" > "$work/metrics"
sed -n 's/^# TYPE \(unmask_[a-z_0-9]*\) .*/\1/p' "$work/metrics" "$work/metrics-with-keys" | sort -u > "$work/series"
shared_pid=$pid
trap 'kill -9 $shared_pid; wait $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT
default_of() { "$UNMASK" list --json commands | jq -r ".commands[] | select(.name == \"serve\").options[] | select(.name == \"$1\").default"; }
# known_to_serve NAME=VALUE...: fails unless `unmask serve` knows these environment variables.
known_to_serve() {
    env "$@" "$UNMASK" serve --print-config > "$work/out" 2> "$work/err"
    cat "$work/err"
    [ ! -s "$work/err" ]
}
unit=packaging/unmask.service.in
unit_value() { sed -n "s/^$1=//p" $unit; }

# prepare_caddy FOLDER PORT: configures Caddy with packaging/Caddyfile, listening at this port, with a certificate of
# its own authority. Sets command, authority, and is_there: a line of its log that shows that it is ready.
prepare_caddy() {
    { printf '{\n admin off\n auto_https disable_redirects\n skip_install_trust\n storage file_system %s\n}\n' "$1"
      sed -E "s#^llm.example.org \{#&\n tls internal\n bind 127.0.0.1#; s#^llm.example.org#&:$2#
        s#127.0.0.1:8000#${url#http://}#" packaging/Caddyfile; } > "$1/conf"
    command=(env HOME="$1" XDG_CONFIG_HOME="$1" caddy run --config "$1/conf" --adapter caddyfile)
    authority=$1/pki/authorities/local/root.crt is_there='certificate obtained'
}
prepare_nginx() {
    local part
    authority=$1/c is_there='start worker processes'
    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -addext subjectAltName=DNS:llm.example.org -days 1 \
        -keyout "$1/k" -out "$authority" 2> "$1/openssl.log"
    sed -E "s#ssl_certificate .*#ssl_certificate $authority;#; s#ssl_certificate_key .*#ssl_certificate_key $1/k;#
        s#127.0.0.1:8000#${url#http://}#; /listen \[::\]/d
        s#listen 443#listen 127.0.0.1:$2#; s#listen 80#listen unix:$1/plain#" packaging/nginx.conf > "$1/site"
    { [ "$(id -u)" != 0 ] || echo 'user root;'
      echo "daemon off; pid $1/pid; error_log stderr notice; events {} http { access_log off; include $1/site;"
      for part in client_body proxy fastcgi uwsgi scgi; do echo "${part}_temp_path $1/$part;"; done
      echo '}'; } > "$1/conf"
    command=(nginx -c "$1/conf" -e stderr)
}
# Starts a proxy in front of the server, on a free port. The proxy is killed when the claim ends. Sets proxied to its
# address.
proxy_with() {
    local port dir=$work/$1 command is_there
    command -v "$1" > /dev/null || skip "$1 is not installed"
    for port in $(shuf -i 20000-32000 -n 20); do
        rm -rf "$dir"
        mkdir "$dir"
        touch "$dir/log"
        "prepare_$1" "$dir" "$port"
        "${command[@]}" 2> "$dir/log" &
        proxy=$!
        trap 'kill $proxy 2> /dev/null || true' EXIT
        wait_for "$is_there\|[Aa]ddress already in use" "$dir/log"
        proxied=https://llm.example.org:$port
        ! grep -q "$is_there" "$dir/log" || return 0
        kill $proxy 2> /dev/null || true
    done
    return 1
}
through_proxy() { curl -sS -m 60 --cacert "$authority" --resolve "${proxied#https://}:127.0.0.1" "$@"; }

passes_requests_with_tls() {
    local chat=$proxied/v1/chat/completions json='Content-Type: application/json'
    local body='{"messages": [{"role": "user", "content": "What is 12 + 30?"}], "stream": true}'
    [ "$(through_proxy "$chat" -H "$json" -d "${body/, \"stream\": true/}" | jq -r '.choices[0].message.content')" = '12 + 30 = 42.' ]

    # While the worker is stopped, the stream can't end. So an event that arrives shows that the proxy doesn't buffer.
    local worker client
    worker=$(pgrep -P $shared_pid)
    kill -STOP $worker
    trap "kill -CONT $worker; kill $proxy" EXIT
    : > "$work/stream"
    through_proxy -N "$chat" -H "$json" -d "$body" -o "$work/stream" &
    client=$!
    wait_for '^data: {.*"role":"assistant"' "$work/stream"
    not grep -q '^data: \[DONE\]' "$work/stream"
    kill -CONT $worker
    wait $client
    grep -q '^data: \[DONE\]' "$work/stream"
}
takes_bodies_as_long_as_the_server_does() {
    local n bytes
    bytes=$(default_of max_body_bytes)
    for n in $bytes $((bytes + 1)); do
        head -c $n /dev/zero | tr '\0' x > "$work/large"
        status=$(through_proxy "$proxied/v1/files?purpose=batch" -H Expect: --data-binary "@$work/large" -o "$work/body" -w '%{http_code}')
        echo "$n: $status"
        [ "$status" = $((n == bytes ? 200 : 413)) ]
    done
}
shows_operators_routes_to_this_machine_alone() {
    local path
    for path in /metrics /call/memory_report /start_profile /stop_profile; do
        [ "$(through_proxy --interface 127.0.0.2 -o "$work/body" -w '%{http_code}' "$proxied$path")" = 403 ]
    done
    [ "$(through_proxy -o "$work/body" -w '%{http_code}' "$proxied/metrics")" = 200 ]
    [ "$(through_proxy --interface 127.0.0.2 -o "$work/body" -w '%{http_code}' "$proxied/v1/models")" = 200 ]
}

accepts_requests_of_its_own_page() {
    local origin
    for origin in "$proxied" https://evil.example; do
        status=$(through_proxy "$proxied/v1/completions" -H "Origin: $origin" -H 'Sec-Fetch-Site: same-origin' \
            -H 'Content-Type: application/json' -d '{"prompt": "1 + 1 =", "max_tokens": 2}' -o "$work/body" -w '%{http_code}')
        echo "$origin: $status"
        [ "$status" = $([ "$origin" = "$proxied" ] && echo 200 || echo 403) ]
    done
}

# Addresses that the client makes up don't count.
names_the_client() {
    through_proxy --interface 127.0.0.3 "$proxied/v1/models?$1" -H 'X-Forwarded-For: 192.0.2.9' \
        -H 'Forwarded: for=192.0.2.9' -H "X-Request-Id: of-$1" -o "$work/body"
    wait_for "of-$1" "$work/log"
    grep -E " 127\.0\.0\.3 GET \"/v1/models\" .*of-$1" "$work/log"
}

claims_begin

unit_has_the_form_of_a_unit() {
    not grep -vnE '^($|#|\[(Unit|Service|Install)\]$|[A-Z][A-Za-z]+=)' $unit
    make -s install-service DESTDIR="$work/root" PREFIX=/opt/unmask
    grep -qx 'ExecStart=/opt/unmask/bin/unmask serve' "$work/root/etc/systemd/system/unmask.service"
    not grep -q @PREFIX@ "$work/root/etc/systemd/system/unmask.service"
}
unit_lets_the_server_end_its_workers_in_time() {
    [ "$(unit_value KillMode)" = mixed ]
    [ "$(unit_value TimeoutStopSec)" -ge $(($(default_of shutdown_grace) + 10)) ]
    [ "$(unit_value RestartPreventExitStatus)" = 2 ]
}
unit_and_its_environment_name_options() {
    mapfile -t variables < <(sed -nE 's/^#?(UNMASK_[A-Z_]+=.*)/\1/p' packaging/unmask.env; unit_value Environment)
    [ "${#variables[@]}" -ge 9 ]
    known_to_serve "${variables[@]}"
    not known_to_serve UNMASK_NO_SUCH_OPTION=1
}
image_names_options() {
    mapfile -t variables < <(sed -n 's/^ENV //p' packaging/Dockerfile | tr ' ' '\n')
    [ "${#variables[@]}" = 3 ]
    known_to_serve "${variables[@]}"
}
image_probe_works() {
    probe=$(sed -nE 's/^ *CMD (\["unmask", "health".*)/\1/p' packaging/Dockerfile | jq -r '.[1:] | @sh')
    grep -q "http://127.0.0.1:$(sed -nE 's/.*UNMASK_PORT=([0-9]+).*/\1/p' packaging/Dockerfile)'" <<< "$probe"
    eval "$UNMASK ${probe/http:\/\/127.0.0.1:8000/$url}"
    not eval "$UNMASK ${probe/http:\/\/127.0.0.1:8000/http://127.0.0.1:1}"
}
proxies_pass_to_the_default_port_what_the_server_takes() {
    port=$(default_of port) bytes=$(default_of max_body_bytes)
    grep -q "server 127.0.0.1:$port;" packaging/nginx.conf
    grep -q "reverse_proxy 127.0.0.1:$port " packaging/Caddyfile
    grep -q "127.0.0.1:$port" packaging/prometheus.yml
    grep -q "client_max_body_size $((bytes >> 20))m;" packaging/nginx.conf
    grep -q 'proxy_buffering off;' packaging/nginx.conf
    grep -q 'flush_interval -1' packaging/Caddyfile
    call "$(sed -n 's/ *metrics_path: //p' packaging/prometheus.yml)"
    [ "$status" = 200 ]
}
caddy_passes_requests_with_tls() {
    proxy_with caddy
    passes_requests_with_tls
}
caddy_takes_bodies_as_long_as_the_server_does() {
    proxy_with caddy
    takes_bodies_as_long_as_the_server_does
}
caddy_shows_operators_routes_to_this_machine_alone() {
    proxy_with caddy
    shows_operators_routes_to_this_machine_alone
}
caddy_accepts_requests_of_its_own_page() {
    proxy_with caddy
    accepts_requests_of_its_own_page
}
nginx_accepts_requests_of_its_own_page() {
    proxy_with nginx
    accepts_requests_of_its_own_page
}
nginx_passes_requests_with_tls() {
    proxy_with nginx
    passes_requests_with_tls
}
nginx_takes_bodies_as_long_as_the_server_does() {
    proxy_with nginx
    takes_bodies_as_long_as_the_server_does
}
nginx_shows_operators_routes_to_this_machine_alone() {
    proxy_with nginx
    shows_operators_routes_to_this_machine_alone
}
caddy_names_the_client() {
    proxy_with caddy
    names_the_client caddy
}
nginx_names_the_client() {
    proxy_with nginx
    names_the_client nginx
}
dashboard_shows_exactly_the_series_that_there_are() {
    jq -r '.. | .expr?, .query? | strings' packaging/grafana.json | grep -oE 'unmask_[a-z0-9_]+' |
        sed -E 's/_(bucket|sum|count)$//' | sort -u > "$work/shown"
    diff "$work/series" "$work/shown"
}
dashboard_has_a_place_for_each_panel() {
    jq -e '[.panels[].id] | length > 20 and length == (unique | length)' packaging/grafana.json
    jq -e '[.panels[].title] | length == (unique | length)' packaging/grafana.json
    jq -e '[.panels[] | .gridPos as $g | range($g.x; $g.x + $g.w) as $x | range($g.y; $g.y + $g.h) | [$x, .]]
        | length == (unique | length)' packaging/grafana.json
    jq -e 'all(.panels[].gridPos; .x + .w <= 24)' packaging/grafana.json
}

claims_all
