# The plots of bench/tradeoffs.sh, which sources this file. Series are named where they end, not in a key. Each has a
# colour and a marker. The colours differ in lightness as well, so that the plots can be read in greyscale and by people
# who see few colours.

# ---- Style ------------------------------------------------------------------------------------------------------- #

colours=('#000000' '#332288' '#cc6677' '#117733' '#88ccee' '#882255' '#999933' '#0077bb' '#d55e00' '#44aa99' '#aa4499'
    '#e69f00' '#666666' '#6699cc')
markers=(7 9 5 13 11 4 6 8 12 10 3 2 1 14)

# line_style NUMBER: prints the colour and the marker of a series, as gnuplot reads them.
line_style() {
    echo "lc rgb '${colours[$1 % ${#colours[@]}]}' pt ${markers[$1 % ${#markers[@]}]}"
}

# plot FILE WIDTH: draws the gnuplot commands of standard input.
plot() {
    {
        cat <<-END
			set terminal svg noenhanced size $2,440 font "sans-serif,13" background "#ffffff"
			set output "$out/$1.svg"
			unset key
			set grid lc rgb "#dddddd"
			set border 3
			set tics nomirror
		END
        cat
    } | gnuplot
}

# ---- Clouds of points -------------------------------------------------------------------------------------------- #

# The name of a row's series: its sampler, and the part if the sampler is not enough.
series_name='function name() { return $4 ($1 ~ /^(sampler|steps)$/ ? "" : " (" ($1 == "cache" ? $3 : $1) ")") }'

# cloud_points MODEL PARTS: writes $work/names, a line for each series, and $work/points, "SERIES X Y" for each point in
# the order of series and X. One answer is a step of Y, which goes to $work/step. Points of different series would often
# coincide, so each series is moved by a part of that step.
cloud_points() {
    awk -F'\t' -v model="$1" -v parts="$2" -v names="$work/names" -v step_file="$work/step" "$series_name"'
        $2 == model && $1 ~ "^(" parts ")$" {
            if (!(name() in number)) { number[name()] = n++; print name() > names }
            series[++m] = number[name()]; x[m] = $9; y[m] = 100 * $8
            if ($7 > questions) questions = $7
        }
        END {
            step = 100 / questions
            print step > step_file
            for (i = 1; i <= m; i++) print series[i], x[i], y[i] + ((n - 1) / 2 - series[i]) / (n + 1) * step
        }' "$rows" | sort -n -k 1,1 -k 2,2 > "$work/points"
}

# dense_part: prints "X0 X1 Y0 Y1" of the third of an octave with the most points, if it has at least ten and is low
# enough for a panel of its own.
dense_part() {
    awk '
        { x[NR] = $2; y[NR] = $3; low = NR == 1 || $3 < low ? $3 : low; high = NR == 1 || $3 > high ? $3 : high }
        END {
            for (i = 1; i <= NR; i++) {
                n = 0
                for (k = 1; k <= NR; k++) n += x[k] >= x[i] && x[k] <= 1.26 * x[i]
                if (n > most) { most = n; from = x[i] }
            }
            for (k = 1; k <= NR; k++) {
                if (x[k] < from || x[k] > 1.26 * from) continue
                to = x[k] > to ? x[k] : to
                y0 = y0 == "" || y[k] < y0 ? y[k] : y0
                y1 = y[k] > y1 ? y[k] : y1
            }
            if (most >= 10 && y1 - y0 <= (high - low) / 4) print from - 0.3, to + 0.3, y0 - 0.3, y1 + 0.3
        }' "$work/points"
}

# chosen_series INSIDE X0 X1 Y0 Y1: prints "SERIES X Y" of the last point of each series that has a point in this part.
# INSIDE 0 takes the series that have points elsewhere, and their last point elsewhere.
chosen_series() {
    awk -v inside="$1" -v x0="$2" -v x1="$3" -v y0="$4" -v y1="$5" '
        ($2 >= x0 && $2 <= x1 && $3 >= y0 && $3 <= y1) == inside { last[$1] = $0 }
        END { for (i in last) print last[i] }' "$work/points"
}

name_of() { sed -n "$(($1 + 1))p" "$work/names"; }

# margin_labels: reads "SERIES X Y". Prints labels at the right of the panel, ordered like the points, each with a thin
# line to its point.
margin_labels() {
    local series x y i=0 at step
    sort -k 3,3gr -k 2,2gr > "$work/ends"
    step=$(awk 'END { s = 0.96 / (NR > 1 ? NR - 1 : 1); print s < 0.09 ? s : 0.09 }' "$work/ends")
    while read -r series x y; do
        at=$(awk -v i=$i -v step="$step" 'BEGIN { print 0.98 - i * step }')
        echo "set arrow from first $x,first $y to graph 1.05,graph $at nohead lc rgb '#bbbbbb' lw 0.8 back"
        echo "set label '$(name_of "$series")' at graph 1.09,graph $at"
        echo "set label '' at graph 1.065,graph $at point $(line_style "$series") ps 0.7"
        i=$((i + 1))
    done < "$work/ends"
}

# ranges: prints "X0 X1 Y0 Y1", the ranges of the axes of a panel with all points.
ranges() {
    awk '
        { x0 = NR == 1 || $2 < x0 ? $2 : x0; x1 = $2 > x1 ? $2 : x1; y0 = NR == 1 || $3 < y0 ? $3 : y0
          y1 = $3 > y1 ? $3 : y1 }
        END { print x0 / 1.4, x1 * 1.4, y0 - 0.1 * (y1 - y0), y1 + 0.08 * (y1 - y0) }' "$work/points"
}

# free_labels X0 X1 Y0 Y1: reads "SERIES X Y" and prints labels that hide nothing in a panel with these ranges.
free_labels() {
    local series x y
    sort -k 2,2g | while read -r series x y; do echo "$series $x $y $(name_of "$series")"; done > "$work/ends"
    awk -v x0="$1" -v x1="$2" -v y0="$3" -v y1="$4" -v width=370 -v height=310 -f bench/tradeoffs_labels.awk \
        "$work/points" "$work/ends"
}

# levels Y0 Y1: prints a grey band for every second level of Y that points can have. A band holds the points of a level,
# which are a little above and below it.
levels() {
    awk -v y0="$1" -v y1="$2" -v step="$(cat "$work/step")" 'BEGIN {
        printf("set ytics %g\nunset grid\nset grid xtics lc rgb \"#dddddd\"\n", step)
        for (i = int(y0 / step / 2); 2 * i * step < y1 + step; i++)
            printf("set object rectangle from graph 0,first %g to graph 1,first %g fc rgb \"#f0f0f0\" fs solid noborder behind\n",
                   (2 * i - 0.5) * step, (2 * i + 0.5) * step)
    }'
}

# panel: prints a plot command with all series.
panel() {
    local i=0 name series=""
    while read -r name; do
        awk -v i=$i '$1 == i { print $2, $3 }' "$work/points" > "$work/series.$i"
        series+="${series:+, }'$work/series.$i' with linespoints $(line_style $i) lw 1.2 ps 0.7 title '$name'"
        i=$((i + 1))
    done < "$work/names"
    echo "plot $series"
}

# cloud FILE TITLE MODEL PARTS: plots accuracy over tokens per forward, with a series for each sampler of the parts. A
# part where many points lie together has a panel of its own.
cloud() {
    local range box
    cloud_points "$3" "$4"
    read -ra range < <(ranges)
    read -ra box < <(dense_part) || true
    {
        cat <<-END
			set title "$2" offset 0,-0.3
			set xlabel "tokens per forward"
			set ylabel "right answers, %"
			set logscale x 2
			set xrange [${range[0]}:${range[1]}]
			set yrange [${range[2]}:${range[3]}]
		END
        if [ ${#box[@]} = 0 ]; then
            echo "set lmargin at screen 0.11; set rmargin at screen 0.68"
            levels "${range[@]:2}"
            chosen_series 1 "${range[@]}" | margin_labels
            panel
        else
            two_panels "${box[@]}"
        fi
    } | plot "$1" $((${#box[@]} ? 1040 : 760))
}

# two_panels X0 X1 Y0 Y1: prints the commands of a panel with all points and one with the points in the box.
two_panels() {
    cat <<-END
		set multiplot
		set lmargin at screen 0.075; set rmargin at screen 0.43; set tmargin at screen 0.88; set bmargin at screen 0.17
		set object rectangle from $1,$3 to $2,$4 fs empty border lc rgb "#000000" dt 2
	END
    chosen_series 0 "$@" | free_labels "${range[@]}"
    panel
    cat <<-END
		unset label; unset arrow; unset object
		set title "the part in the box" offset 0,-0.3
		set lmargin at screen 0.51; set rmargin at screen 0.78
		unset ylabel
		unset logscale x
		set xrange [$1:$2]
		set yrange [$3:$4]
	END
    levels "$3" "$4"
    chosen_series 1 "$@" | margin_labels
    panel
    echo "unset multiplot"
}

# ---- All plots --------------------------------------------------------------------------------------------------- #

plot_buffer() {
    local n
    n=$(select_rows 'NR == 1' '$14')
    select_rows '$1 == "buffer"' '$6, $10, $11, $12' > "$work/buffer"
    plot buffer 560 <<-END
		set title "tiny-block: blocks in the buffer"
		set xlabel "buffer_size"
		set xrange [0.8:4.2]
		set xtics 1
		set ylabel "tokens/s"
		set yrange [0:*]
		set label '$([ "$n" = 1 ] && echo "one run" || echo "median, least and most of $n runs")' at graph 0.03,graph 0.06
		plot '$work/buffer' with yerrorlines lc rgb "#000000" pt 7 title 'median, least, most'
	END
}

# first_label TEXT FILE COLUMN OFFSET: prints a label at the first point of a series, OFFSET lines above it.
first_label() {
    awk -v text="$1" -v column="$3" -v offset="$4" 'NR == 1 {
        printf("set label \"%s\" at first %s,first %s left offset 1,%s\n", text, $1, $column, offset) }' "$2"
}

plot_retention() {
    select_rows '$5 ~ /^delay_step 1, /' "\$6, 100 * \$8, 100 * \$13 / $dense_bytes" > "$work/one"
    select_rows '$5 ~ /^delay_step 1 head_select, /' '$6, 100 * $8' > "$work/heads"
    {
        cat <<-END
			set title "tiny-full: sparse, delay_step 1"
			set xlabel "retention_ratio"
			set xrange [0.25:1.05]
			set ylabel "%"
			set yrange [0:109]
		END
        first_label 'right answers' "$work/one" 2 -1.2
        first_label 'right answers, head_select' "$work/heads" 2 1.4
        first_label 'stored keys and values, share of those of dual_cache' "$work/one" 3 -1.2
        cat <<-END
			plot '$work/one' using 1:2 with linespoints $(line_style 0) title 'accuracy', \\
			    '$work/heads' using 1:2 with linespoints $(line_style 4) dt 3 lw 2 title 'accuracy, head_select', \\
			    '$work/one' using 1:3 with linespoints $(line_style 8) dt 2 title 'stored'
		END
    } | plot retention 640
}

plots() {
    cloud block "tiny-block: what tokens per forward cost" tiny-block "threshold|buffer|sampler"
    cloud whole "tiny-full: what tokens per forward cost" tiny-full "steps|cache"
    plot_buffer
    plot_retention
}
