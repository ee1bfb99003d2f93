# Places a label beside the end of each series of a plot, where it hides no point, no line and no other label. Reads
# "SERIES X Y" of all points in order, then "SERIES X Y NAME" of the ends in a second file, and prints gnuplot commands.
# x0, x1, y0, y1: ranges of the axes, X is logarithmic. width, height: pixels of the panel.

function column(x) { return log(x / x0) / log(x1 / x0) * width }
function line(y) { return (y - y0) / (y1 - y0) * height }

# Keeps the box around a point free. half_width and half_height are in pixels.
function occupy(c, l, half_width, half_height) {
    n++
    left[n] = c - half_width; right[n] = c + half_width; low[n] = l - half_height; high[n] = l + half_height
}

function is_free(c, l, half_width, half_height,    i) {
    if (c - half_width < 4 || c + half_width > width || l - half_height < 4 || l + half_height > height) return 0
    for (i = 1; i <= n; i++)
        if (c - half_width < right[i] && c + half_width > left[i] && l - half_height < high[i] && l + half_height > low[i])
            return 0
    return 1
}

# Keeps a line free, in steps of 6 pixels.
function occupy_line(c0, l0, c1, l1,    i, steps) {
    steps = int(sqrt((c1 - c0) ^ 2 + (l1 - l0) ^ 2) / 6) + 1
    for (i = 0; i <= steps; i++) occupy(c0 + (c1 - c0) * i / steps, l0 + (l1 - l0) * i / steps, 4, 4)
}

function put(name, c, l, at_c, at_l) {
    printf("set label '%s' at graph %.4f,graph %.4f center\n", name, at_c / width, at_l / height)
    if ((at_l - l) ^ 2 > 400)
        printf("set arrow from graph %.4f,graph %.4f to graph %.4f,graph %.4f nohead lc rgb '#bbbbbb' lw 0.8\n",
               c / width, l / height, at_c / width, (at_l - (at_l > l ? 7 : -7)) / height)
}

NR == FNR {
    occupy(column($2), line($3), 5, 5)
    if ($1 == last) occupy_line(last_column, last_line, column($2), line($3))
    last = $1; last_column = column($2); last_line = line($3)
    next
}

{
    c = column($2); l = line($3)
    name = $4 ($5 == "" ? "" : " " $5)
    half = 3.8 * length(name)
    for (far = 14; far < 200; far += 4)
        for (k = 0; k < 8; k++) {
            at_c = c + cos(k * 0.7854) * (half + far - 10); at_l = l + sin(k * 0.7854) * far
            if (!is_free(at_c, at_l, half, 8)) continue
            occupy(at_c, at_l, half, 8)
            put(name, c, l, at_c, at_l)
            next
        }
}
