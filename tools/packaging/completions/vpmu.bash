# shellcheck shell=bash
# Completion of vpmu for bash: the commands and options are those that its --help lists.
_vpmu() {
	local word=${COMP_WORDS[COMP_CWORD]} command=() listed
	if [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} != -* ]]; then command=("${COMP_WORDS[1]}"); fi
	case $word in
	-*) listed=$(vpmu "${command[@]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]+' | sort -u) ;;
	*) listed=$([ "$COMP_CWORD" = 1 ] && vpmu --help 2>/dev/null | sed -nE 's/^  ([a-z][a-z-]+)  .*/\1/p') ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$listed" -- "$word")
}
# A value that is none of these is a file.
complete -o default -F _vpmu vpmu
