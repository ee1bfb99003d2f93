# Replays the output of a program on a terminal of COLS columns and ROWS rows. Prints the final state of every line,
# including lines that scrolled out. Supports only what the view uses, and ASCII.
BEGIN { RS = "\001"; ORS = ""; row = column = last = 0 }

function put(c) {
    if (column == COLS) { row++; column = 0 }
    while (length(line[row]) < column) line[row] = line[row] " "
    line[row] = substr(line[row], 1, column) c substr(line[row], column + 2)
    column++
}

function escape(n, what, top) {
    top = last - ROWS + 1
    if (what == "A") row = row - n < (top > 0 ? top : 0) ? (top > 0 ? top : 0) : row - n
    else if (what == "K") line[row] = substr(line[row], 1, column == COLS ? column - 1 : column)
    else if (what == "J") {
        line[row] = substr(line[row], 1, column == COLS ? column - 1 : column)
        for (i = row + 1; i <= last; i++) line[i] = ""
    } else if (what != "m") { print "unexpected escape sequence " what "\n"; exit 1 }
}

{
    for (p = 1; p <= length($0); p++) {
        c = substr($0, p, 1)
        if (c == "\r") column = 0
        else if (c == "\n") row++
        else if (c == "\033") {
            match(substr($0, p), /^\033\[[0-9;]*[A-Za-z]/)
            escape(substr($0, p + 2, RLENGTH - 3) + 0, substr($0, p + RLENGTH - 1, 1))
            p += RLENGTH - 1
        } else put(c)
        if (row > last) last = row
    }
}

END { for (i = 0; i <= last; i++) print line[i] "\n" }
