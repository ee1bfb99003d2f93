#!/bin/bash
# Compressed request bodies: gzip and zstd, their limits, and data that are damaged.
source tests/cli/claims.bash
source tests/server/serve.bash

if [[ $("$UNMASK" --version) != *'gzip, zstd'* ]]; then
    echo 'not ok 1 # SKIP built without zlib or libzstd'
    echo 1..1
    exit 0
fi

serve --in-process --state-dir "$work/state" --max-body-bytes 4000000
shared_pid=$pid
trap 'kill -9 $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT

question='{"messages": [{"role": "user", "content": "Write \"rabbit\" 2 times"}], "temperature": 0}'
# Writes bytes of the arguments, lowest byte first: little N BYTES
little() {
    local i
    for ((i = 0; i < $2; i++)); do printf "\\x$(printf %02x $(($1 >> 8 * i & 255)))"; done
}
# Prints the head of a zstd frame with a window of 128 KiB.
zstd_head() { printf '\x28\xb5\x2f\xfd\x00\x38'; }
# Prints a zstd frame that holds the text as it is.
zstd_raw() {
    zstd_head
    little $((1 | ${#1} << 3)) 3
    printf %s "$1"
}
# Prints a zstd frame of N blocks, each 128 KiB of spaces, then "{}".
zstd_blanks() {
    local i
    zstd_head
    for ((i = 0; i < $1; i++)); do
        little $((2 | 131072 << 3)) 3
        printf ' '
    done
    little $((1 | 2 << 3)) 3
    printf '{}'
}
# Sends a file to a path in a coding.
send() { call "$1" -H 'Content-Type: application/json' -H "Content-Encoding: $2" --data-binary "@$3" "${@:4}"; }
refused_with() {
    [ "$status" = "$1" ]
    [[ "$(member error.message)" = *$2* ]]
}
content() { jq -c '.choices[0].message.content' "$work/body"; }

claims_begin

answers_are_those_of_the_plain_body() {
    local plain coding
    post /v1/chat/completions "$question"
    plain=$(content)
    [ "$status" = 200 ]
    printf %s "$question" | gzip > "$work/gzip"
    printf %s "$question" | split -b 40 --filter='gzip' - > "$work/x-gzip" # several members
    zstd_raw "$question" > "$work/zstd"
    { zstd_raw "${question:0:30}"; zstd_raw "${question:30}"; } > "$work/ZSTD"
    for coding in gzip x-gzip zstd ZSTD; do
        send /v1/chat/completions $coding "$work/$coding"
        [ "$status" = 200 ]
        [ "$(content)" = "$plain" ]
    done
    send /v1/chat/completions identity <(printf %s "$question")
    [ "$(content)" = "$plain" ]
    # A request in chunks.
    send /v1/chat/completions gzip "$work/gzip" -H 'Transfer-Encoding: chunked'
    [ "$(content)" = "$plain" ]
}

# Objects of endpoints that generate nothing are decoded on the loop, so they are small.
small_objects_are_decoded() {
    printf '{"input_file_id": "file-none", "endpoint": "/v1/completions"}' | gzip > "$work/small"
    send /v1/batches gzip "$work/small"
    refused_with 400 file-none
    zstd_blanks 1 > "$work/large"
    send /v1/batches zstd "$work/large"
    refused_with 413 'larger than 65536 bytes'
}

a_body_that_unpacks_to_too_much_is_413() {
    # 40 blocks of 128 KiB are 5 MB.
    { zstd_blanks 40; head -c 60000 /dev/zero | tr '\0' ' '; } > "$work/bomb"
    send /tokenize zstd "$work/bomb" # the blanks behind the frame are not read
    refused_with 413 'larger than 4000000 bytes'
    head -c 5000000 /dev/zero | tr '\0' ' ' | gzip > "$work/bomb"
    send /tokenize gzip "$work/bomb"
    refused_with 413 'larger than 200 times'
    zstd_blanks 20 > "$work/bomb"
    send /tokenize zstd "$work/bomb"
    refused_with 413 '--max-body-ratio'
    # Up to 64 KiB every ratio is fine.
    { head -c 60000 /dev/zero | tr '\0' ' '; printf '{"prompt": "a"}'; } | gzip > "$work/blanks"
    [ "$(stat -c %s "$work/blanks")" -lt 300 ]
    send /tokenize gzip "$work/blanks"
    [ "$status" = 200 ]
}

damaged_bodies_are_400() {
    printf %s "$question" | gzip > "$work/gzip"
    head -c -5 "$work/gzip" > "$work/cut"
    send /tokenize gzip "$work/cut"
    refused_with 400 'ends too soon'
    { head -c -5 "$work/gzip"; printf 'xxxxx'; } > "$work/sum"
    send /tokenize gzip "$work/sum"
    refused_with 400 'not valid gzip'
    { cat "$work/gzip"; printf 'more'; } > "$work/more"
    send /tokenize gzip "$work/more"
    refused_with 400 'not valid gzip'
    send /tokenize gzip <(printf %s "$question")
    refused_with 400 'not valid gzip'
    zstd_raw "$question" | head -c -5 > "$work/cut"
    send /tokenize zstd "$work/cut"
    refused_with 400 'ends too soon'
    send /tokenize zstd "$work/gzip"
    refused_with 400 'not valid zstd'
    # A window of 1 GiB.
    { printf '\x28\xb5\x2f\xfd\x00\xa0'; little $((1 | 2 << 3)) 3; printf '{}'; } > "$work/window"
    send /tokenize zstd "$work/window"
    refused_with 400 'not valid zstd'
    printf '[1' | gzip > "$work/json"
    send /tokenize gzip "$work/json"
    refused_with 400 'JSON'
}

other_codings_are_415() {
    local coding
    for coding in br deflate 'gzip, gzip' 'gzip, zstd'; do
        send /v1/chat/completions "$coding" <(printf '{}')
        refused_with 415 'gzip, zstd'
        [ "$(header accept-encoding)" = 'gzip, zstd' ]
    done
    printf '{}\n' | gzip > "$work/lines"
    call /v1/files -H 'Content-Encoding: gzip' -F purpose=batch -F "file=@$work/lines"
    refused_with 415 'without Content-Encoding'
}

claims_all
