# Prints the completions that zsh offers for command lines: zsh -f tests/cli/complete.zsh FOLDER LINE...
#
# FOLDER holds the script _unmask. Each line of the output has the matches of one command line, sorted, with spaces
# between them. A shell on a terminal of its own completes the lines. There, `compadd` is a function
# that prints the matches in place of adding them. Each line that it prints begins with "<=".
zmodload zsh/zpty
setup=$(mktemp -d)
trap 'rm -rf "$setup"' EXIT
cat > "$setup/.zshrc" <<END
PROMPT= RPROMPT= fpath=(${(q)1:a} \$fpath)
autoload -Uz compinit
compinit -D -u
END
cat >> "$setup/.zshrc" <<'END'
compadd() {
    local -a matches
    # With -O, -A or -D, compadd sets variables and adds nothing.
    if (( ${argv[(I)-[OAD]]} )); then
        builtin compadd "$@"
        return
    fi
    builtin compadd -O matches "$@"
    (( ! ${#matches} )) || print -rl -- "<="${^matches}
    return $(( ! ${#matches} ))
}
capture() { print; _main_complete; print "<END>"; }
zle -C capture complete-word capture
bindkey '^I' capture
print "<READY>"
END
export ZDOTDIR=$setup
zpty z zsh -d -i
while zpty -r z line && [[ $line != *"<READY>"* ]]; do :; done
for command in "${@[2,-1]}"; do
    matches=()
    zpty -w -n z $'\025'"$command"$'\t' # \025 clears the line
    while zpty -r z line && [[ $line != *"<END>"* ]]; do
        line=${${line%$'\n'}%$'\r'}
        [[ $line != *"<="* ]] || matches+=("${line#*<=}")
    done
    matches=(${(ou)matches})
    print -r -- "$matches"
done
zpty -d z
