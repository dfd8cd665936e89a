# Completion of vpmu for fish: the commands and options are those that its --help lists.
complete -c vpmu -n __fish_use_subcommand -a "(vpmu --help 2>/dev/null | string match -rg '^  ([a-z][a-z-]+)  ')"
complete -c vpmu -n "string match -q -- '-*' (commandline -ct)" \
    -a "(vpmu (commandline -opc)[2..2] --help 2>/dev/null | string match -rag -- '(--[a-z][a-z-]+)' | sort -u)"
