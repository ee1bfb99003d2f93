#!/bin/bash
# Includes point down: a room, or a folder of src/server, includes only itself and those below it, and no two headers
# include each other.
source tests/cli/claims.bash

# From the top to the bottom. Names on one line don't include each other.
layers='cli
server
server/api server/batch
server/generate
server/service
server/body server/metrics server/respond
server/workers
server/worker
server/link
server/keys
server/config server/http server/work
engine
cuda decode kv model
grammar
ops text
base'

# includes FOLDER: "FILE INCLUDED" for each include of a file under FOLDER that lies there, too.
includes() {
    (cd "$1" && grep -rE '^#include "' --include='*.[ch]' --include='*.inc' . || true) |
        sed -E 's|^\./([^:]*):#include "(.*)"|\1 \2|' |
        while read -r from to; do
            [ ! -f "$1/$to" ] || echo "$from $to"
        done
}

# upward FOLDER: the includes that break a rule.
upward() {
    includes "$1" | awk -v layers="$layers" '
        BEGIN {
            n = split(layers, line, "\n")
            for (i = 1; i <= n; i++) {
                m = split(line[i], name, " ")
                for (k = 1; k <= m; k++) level[name[k]] = i
            }
        }
        function place(path, part, n) {
            n = split(path, part, "/")
            return part[1] == "server" && n > 2 ? part[1] "/" part[2] : part[1]
        }
        {
            from = place($1)
            to = place($2)
            if (!(from in level)) print "no layer: " from
            else if (!(to in level)) print "no layer: " to
            else if (from != to && level[from] >= level[to]) print $1 " includes " $2 ", which is not below it"
            else if (from ~ /^server/ && to == "engine" && $2 !~ /^engine\/(options|replica)\.h$/)
                print $1 " includes " $2 ": the server knows of the engine its options and the replica"
        }'
}

# header_circles FOLDER: the headers that include each other, as tsort reports them.
header_circles() {
    includes "$1" | awk '$1 ~ /[.]h$/ && $2 ~ /[.]h$/' | tsort 2>&1 > /dev/null || true
}

claims_begin

includes_point_down() {
    upward src > "$work/out"
    diff /dev/null "$work/out"
}

headers_have_no_circle() {
    header_circles src > "$work/out"
    diff /dev/null "$work/out"
}

an_include_that_points_up_is_found() {
    mkdir -p "$work/src/base" "$work/src/server/api" "$work/src/server/http" "$work/src/engine"
    touch "$work/src/base/base.h" "$work/src/server/api/apis.h" "$work/src/engine/engine.h"
    echo '#include "base/base.h"' > "$work/src/engine/ok.c"
    echo '#include "engine/engine.h"' > "$work/src/base/up.c"
    echo '#include "server/api/apis.h"' > "$work/src/server/http/up.c"
    echo '#include "engine/engine.h"' > "$work/src/server/api/wide.c"
    upward "$work/src" | sort > "$work/out"
    diff - "$work/out" << 'END'
base/up.c includes engine/engine.h, which is not below it
server/api/wide.c includes engine/engine.h: the server knows of the engine its options and the replica
server/http/up.c includes server/api/apis.h, which is not below it
END
}

a_circle_of_headers_is_found() {
    mkdir -p "$work/src/base"
    echo '#include "base/b.h"' > "$work/src/base/a.h"
    echo '#include "base/a.h"' > "$work/src/base/b.h"
    header_circles "$work/src" | grep base/a.h
}

claims_all
