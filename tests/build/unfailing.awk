# Prints the lines of a bash script that can't fail under "set -e", as FILE:LINE: TEXT. bash ignores a failure in an &&
# list except in the last command, and in a command after "!":
#
#   [ A ] && [ B ]      call X && [ B ]      ! grep X FILE      [ A ] || ! grep X FILE
#
# Text in quotes, parentheses or [[ ]], conditions of if, while or until, and lists that end in "|| COMMAND" are not
# reported.

# Returns the line without its comment, and with _ for each character in quotes or parentheses. `nest` has the open
# quotes and brackets, the innermost last: ', ", ( or {, the latter for ${...}. `here` is the word that ends a
# here-document.
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
        print file ": unclosed at the end of the file: " nest here text
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
        next # the command continues in the next line
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
