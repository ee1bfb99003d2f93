#!/bin/bash
# What operators copy from packaging/: it names options, paths, series and packages that exist.
source tests/cli/claims.bash
source tests/server/serve.bash

serve --state-dir "$work/state"
curl -sS "$url/metrics" > "$work/metrics"
sed -n 's/^# TYPE \(unmask_[a-z_0-9]*\) .*/\1/p' "$work/metrics" | sort > "$work/series"
shared_pid=$pid
trap 'kill -9 $shared_pid; wait $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT
default_of() { "$UNMASK" list --json commands | jq -r ".commands[] | select(.name == \"serve\").options[] | select(.name == \"$1\").default"; }
# Fails unless `unmask serve` knows each of the variables NAME=VALUE.
known_to_serve() {
    env "$@" "$UNMASK" serve --print-config > "$work/out" 2> "$work/err"
    cat "$work/err"
    [ ! -s "$work/err" ]
}
unit=packaging/unmask.service.in
unit_value() { sed -n "s/^$1=//p" $unit; }

# Starts Caddy with its file in front of the server, on a free port of this machine and with a certificate of its own
# authority. Sets proxied_url, and takes it down with the claim.
proxy_with_caddy() {
    local port home=$work/caddy
    rm -rf "$home"
    mkdir "$home"
    for port in $(shuf -i 20000-32000 -n 20); do
        { printf '{\n admin off\n auto_https disable_redirects\n skip_install_trust\n storage file_system %s\n}\n' "$home"
          sed -E "s#^llm.example.org \{#&\n tls internal\n bind 127.0.0.1#; s#^llm.example.org#&:$port#
            s#127.0.0.1:8000#${url#http://}#" packaging/Caddyfile; } > "$home/Caddyfile"
        HOME=$home XDG_CONFIG_HOME=$home caddy run --config "$home/Caddyfile" --adapter caddyfile 2> "$home/log" &
        proxy=$!
        trap 'kill -9 $proxy 2> /dev/null || true' EXIT
        wait_for 'serving initial configuration\|address already in use' "$home/log"
        if grep -q 'serving initial configuration' "$home/log"; then
            proxied_url=https://llm.example.org:$port
            wait_for 'certificate obtained' "$home/log"
            return 0
        fi
    done
    return 1
}
through_caddy() { curl -sS -m 60 --cacert "$work/caddy/pki/authorities/local/root.crt" --resolve "${proxied_url#https://}:127.0.0.1" "$@"; }

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
image_holds_the_libraries_that_the_program_needs() {
    command -v dpkg > /dev/null || skip packages have these names on Debian
    for library in $(ldd "$UNMASK" | sed -nE 's/.*(libevent|libzmq|libjansson|libpcre2|libutf8proc|libyaml)[^ ]* => ([^ ]*).*/\2/p'); do
        package=$(dpkg -S "$(realpath "$library")" | cut -d: -f1)
        grep -qE "(^| )$package( |$)" packaging/Dockerfile || { echo "$package is missing"; return 1; }
    done
    for file in $(sed -nE 's/^COPY ([a-z][^ ]*) .*/\1/p' packaging/Dockerfile); do [ -e "$file" ]; done
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
nginx_takes_its_file() {
    command -v nginx > /dev/null || skip nginx is not installed
    mkdir "$work/nginx"
    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -days 1 -keyout "$work/nginx/k" -out "$work/nginx/c"
    sed -E "s#ssl_certificate .*#ssl_certificate $work/nginx/c;#; s#ssl_certificate_key .*#ssl_certificate_key $work/nginx/k;#" \
        packaging/nginx.conf > "$work/nginx/site"
    echo "pid $work/nginx/pid; events {} http { include $work/nginx/site; }" > "$work/nginx/conf"
    nginx -t -c "$work/nginx/conf" -e "$work/nginx/log"
}
caddy_passes_requests_with_tls() {
    proxy_with_caddy
    local chat=$proxied_url/v1/chat/completions json='Content-Type: application/json'
    local body='{"messages": [{"role": "user", "content": "What is 12 + 30?"}], "stream": true}'
    [ "$(through_caddy "$chat" -H "$json" -d "${body/, \"stream\": true/}" | jq -r '.choices[0].message.content')" = '12 + 30 = 42.' ]

    # As long as the worker is held there is no answer that could end: what arrives was not kept back for its end.
    local worker
    worker=$(pgrep -P $shared_pid)
    kill -STOP $worker
    trap "kill -CONT $worker; kill -9 $proxy" EXIT
    touch "$work/stream"
    through_caddy -N "$chat" -H "$json" -d "$body" -o "$work/stream" &
    local client=$!
    wait_for '^data: {.*"role":"assistant"' "$work/stream"
    not grep -q '^data: \[DONE\]' "$work/stream"
    kill -CONT $worker
    wait $client
    grep -q '^data: \[DONE\]' "$work/stream"
}
caddy_takes_bodies_as_long_as_the_server_does() {
    proxy_with_caddy
    local bytes
    bytes=$(default_of max_body_bytes)
    for n in $bytes $((bytes + 1)); do
        head -c $n /dev/zero | tr '\0' x > "$work/large"
        status=$(through_caddy "$proxied_url/v1/files?purpose=batch" -H Expect: --data-binary "@$work/large" -o "$work/body" -w '%{http_code}')
        echo "$n: $status"
        [ "$status" = $((n == bytes ? 200 : 413)) ]
    done
}
caddy_shows_operators_routes_to_this_machine_alone() {
    proxy_with_caddy
    for path in /metrics /call/memory_report /start_profile /stop_profile; do
        [ "$(through_caddy --interface 127.0.0.2 -o "$work/body" -w '%{http_code}' "$proxied_url$path")" = 403 ]
    done
    [ "$(through_caddy -o "$work/body" -w '%{http_code}' "$proxied_url/metrics")" = 200 ]
    [ "$(through_caddy --interface 127.0.0.2 -o "$work/body" -w '%{http_code}' "$proxied_url/v1/models")" = 200 ]
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
