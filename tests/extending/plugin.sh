#!/bin/bash
# Plugins: the program loads the sampler of examples/plugins and treats its names and parameters like built-in ones.
source tests/cli/claims.bash
source tests/server/serve.bash
: "${BUILD:=build}"

# build_plugin SOURCE: compiles a plugin as the page says and prints its path.
build_plugin() {
    local out
    out=$work/$(basename "$1" .c).so
    ${CC:-cc} -shared -fPIC -Wall -Wextra -Werror -Iinclude -o "$out" "$1"
    echo "$out"
}

claims_begin

names_and_parameters_appear_everywhere() {
    plugin=$(build_plugin examples/plugins/annealed.c)
    "$UNMASK" list --json samplers --plugin "$plugin" |
        jq -e '.samplers[] | select(.name == "annealed") | .parameters[0] | .name == "annealed_start" and .default == "0.9"'
    "$UNMASK" run --help --plugin "$plugin" | grep -A 1 -e '--annealed-start X' | grep -q '0..1; default 0.9'
    "$UNMASK" serve --model models/tiny-block --plugin "$plugin" --print-config | grep 'annealed_start: 0.9'
    not grep -q annealed <<< "$("$UNMASK" list samplers)"
}
requests_use_it() {
    plugin=$(build_plugin examples/plugins/annealed.c)
    [ "$("$UNMASK" run --model models/tiny-block --plugin "$plugin" --sampler annealed --quiet 'What is 12 + 30?')" = '12 + 30 = 42.' ]
    [ "$(UNMASK_PLUGIN=$plugin "$UNMASK" run --model models/tiny-full --sampler annealed --annealed-start 0.5 --quiet \
        'What is 12 + 30?')" = '12 + 30 = 42.' ]
    echo '{"prompt": "What is 12 + 30?", "sampler": "annealed", "annealed_start": 1}' > "$work/in"
    "$UNMASK" generate --model models/tiny-block --plugin="$plugin" --input "$work/in" --output "$work/slow" --quiet
    sed -i 's/"annealed_start": 1/"annealed_start": 0/' "$work/in"
    "$UNMASK" generate --model models/tiny-block --plugin="$plugin" --input "$work/in" --output "$work/fast" --quiet
    [ "$(jq .nfe "$work/slow")" -gt "$(jq .nfe "$work/fast")" ]
}
servers_and_their_workers_use_it() {
    local ask
    plugin=$(build_plugin examples/plugins/annealed.c)
    serve --plugin "$plugin"
    ask='{"model": "tiny-block", "messages": [{"role": "user", "content": "What is 12 + 30?"}], "sampler": "annealed"'
    post /v1/chat/completions "$ask, \"annealed_start\": 0.7}"
    [ "$(member 'choices[0].message.content')" = '12 + 30 = 42.' ]
    post /v1/chat/completions "$ask, \"annealed_start\": 7}"
    [ "$status" = 400 ]
    [ "$(member error.param)" = annealed_start ]
    call /options
    jq -e '[.. | objects | select(.name? == "annealed_start")] | length == 1' "$work/body"
    stop_server
}
mistakes_are_named() {
    plugin=$(build_plugin examples/plugins/annealed.c)
    try run --model models/tiny-block --plugin "$plugin" --sampler annealed --annealed-start 3 Hello
    [ "$rc" = 2 ]
    grep -q 'annealed-start: 3 is outside 0..1' "$work/err"
    try run --model models/tiny-block --plugin "$plugin" --annealed-start 0.5 Hello
    [ "$rc" = 3 ]
    grep -q 'annealed_start: 0.5 would have no effect.*read by sampler annealed' "$work/err"
    try run --model models/tiny-block --plugin "$work/missing.so" Hello
    [ "$rc" = 2 ]
    grep -q "plugin: the plugin can't be loaded: .*missing.so" "$work/err"
    echo 'int nothing;' > "$work/nothing.c"
    try run --model models/tiny-block --plugin "$(build_plugin "$work/nothing.c")" Hello
    [ "$rc" = 2 ]
    grep -q 'a plugin defines the array um_plugin_samplers' "$work/err"
    try run --model models/tiny-block --plugin "$plugin,$plugin" Hello
    [ "$rc" = 2 ]
    grep -q 'sampler annealed: the name is taken' "$work/err"
    echo "plugin: $plugin" > "$work/file.yaml"
    try run --model models/tiny-block --config "$work/file.yaml" Hello
    [ "$rc" = 2 ]
    grep -q 'plugin belongs on the command line or in the environment' "$work/err"
}
check_plugin_tells_good_from_bad() {
    plugin=$(build_plugin examples/plugins/annealed.c)
    try check-plugin "$plugin"
    [ "$rc" = 0 ]
    grep -qx 'sampler annealed: keeps all rules' "$work/out"
    sed 's/batch->probability\[i\] > threshold/batch->probability[i] > threshold || batch->n_blocks > 1/' \
        examples/plugins/annealed.c > "$work/nosy.c"
    try check-plugin "$(build_plugin "$work/nosy.c")"
    [ "$rc" = 1 ]
    grep -q 'its decision about a block depends on the other blocks of the batch' "$work/out"
    sed 's/(void)arg;/(void)arg; void **kept = malloc(64); *kept = kept;/; s/<unmask.h>/<unmask.h>\n#include <stdlib.h>/' \
        examples/plugins/annealed.c > "$work/leaks.c"
    try check-plugin "$(build_plugin "$work/leaks.c")"
    [ "$rc" = 1 ]
    grep -q 'sampler annealed: it keeps memory that it allocates' "$work/out"
    try check-plugin "$work/missing.so"
    [ "$rc" = 2 ]
    try check-plugin
    [ "$rc" = 2 ]
    grep -q 'expected one FILE' "$work/err"
}

claims_all
