# Lines of a bash script that cannot fail under "set -e", as FILE:LINE: TEXT. bash ignores it for all of an && list but
# the last command, and for what a "!" turns round:
#
#   [ A ] && [ B ]      call X && [ B ]      ! grep X FILE      [ A ] || ! grep X FILE
#
# What stands in quotes, in parentheses, in [[ ]], behind if, while or until, or before "|| WHAT_THEN" is in order.

# The line without its comment, with a _ for each character of quoted text and of what is in parentheses. nest holds what
# is open, the innermost last: ', ", ( or {, the last for ${...}; here is the word that ends a here-document.
function bare(line, out, i, c, code, top, two, before) {
    out = ""
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        two = substr(line, i, 2)
        top = substr(nest, length(nest))
        code = top == "" || top == "("
        before = i == 1 ? " " : substr(line, i - 1, 1)
        if (top != "'" && c == "\\") {
            out = out "_"
            i++
        } else if (top != "'" && (two == "$(" || two == "${")) {
            nest = nest substr(two, 2)
            out = out "_"
            i++
        } else if (top != "" && c == closing[top])
            nest = substr(nest, 1, length(nest) - 1)
        else if (top != "'" && c == "\"" || code && c == "(" || (code || nest ~ /(^|[^"])\{$/) && c == "'")
            nest = nest c
        else if (code && c == "#" && before ~ /[ \t;(]/)
            break
        else if (top == "") {
            out = out c
            continue
        }
        out = out "_"
    }
    return out
}

function expect_closed() {
    if (nest here text != "")
        print file ": what is open at its end? " nest here text
}

BEGIN {
    closing["'"] = "'"
    closing["\""] = "\""
    closing["("] = ")"
    closing["{"] = "}"
}
FNR == 1 {
    expect_closed()
    nest = here = text = ""
    file = FILENAME
}
here != "" {
    if ($0 == here)
        here = ""
    next
}
{
    text = text bare($0)
    if (text == "")
        next
    if (nest == "" && match($0, /<< *'?[A-Z]+'?$/)) {
        here = substr($0, RSTART)
        gsub(/[^A-Z]/, "", here)
    }
    if (nest != "" || $0 ~ /(\\|\||&&)$/)
        next # goes on in the next line
    gsub(/\[\[ .* \]\]/, "_", text)
    gsub(/\[ ! /, "[ ", text)
    gsub(/(if|elif|while|until) [^;]*/, "", text)
    then = text
    sub(/.*(&&|! )/, "", then)
    if (then !~ /\|\|/ && text ~ /&&|(^|[;{|]|do|then|else) *! /)
        print FILENAME ":" FNR ": " $0
    text = ""
}
END { expect_closed() }
