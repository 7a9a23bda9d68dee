// Package bootstrap is the text that the login shell of a host is told to run. It
// becomes the program that is started, by way of /bin/sh, in one exec: where the
// programs are there, nothing else is asked of the host. It opens no connection.
//
// The login shell may be bash, zsh, fish or csh. They agree on what stands
// between single quotes as long as it holds no single quote, no exclamation mark,
// no line end, and no backslash before a backslash.
//
// What the text prints for the launcher are lines that begin with a random word,
// so that nothing which shell files print is mistaken for one:
//
//	WORD missing FILE KIND   send FILE; KIND is gzip or raw
//	WORD failed WHY TEXT     the end
//	WORD exec FOLDER         the next byte is the program's own
//
// To "missing" the launcher answers with a line "BYTES SIZE" and so many bytes,
// and then keeps silent until the next line: head may read ahead.
package bootstrap

// scriptText is a template; @WORD@ and the like are filled in.
const scriptText = `n=@WORD@; ` +
	// Why the program could not be started, on one line, and the end.
	`f() { w=$1; shift; set -f; echo "$n" failed "$w" $*; exit 1; }; ` +
	`case ${XDG_CACHE_HOME-} in /*) c=$XDG_CACHE_HOME;; *) c=${HOME-}/.cache;; esac; c=$c/muster/bin; ` +
	// The kernel's word for the machine costs no process where /proc has it.
	`if [ -r /proc/sys/kernel/arch ]; then read -r m </proc/sys/kernel/arch; m="Linux $m"; else m=$(uname -sm); fi; ` +
	`case $m in @PLATFORMS@ *) f platform "$m";; esac; ` +
	// Is one of these files there?
	`h() { for q in "$@"; do [ -e "$q" ] && return 0; done; return 1; }; @CONDITIONS@` +
	// Fetch a program. The word makes the temporary name unique: homes may be
	// shared by hosts that install at the same time.
	`z() { rm -f "$t"; }; ` +
	`g() { t=$c/.$n; umask 077; trap z 0; trap "exit 1" 1 2 13 15; ` +
	`e=$(LC_ALL=C; export LC_ALL; mkdir -p "$c" 2>&1) || f folder "$e"; ` +
	`find "$c" -name ".*" -type f -mtime +1 -exec rm -f {} + 2>/dev/null; ` +
	`k=raw; command -v gzip >/dev/null 2>&1 && k=gzip; ` +
	`echo "$n" missing "$1" $k; read -r b s || exit 1; ` +
	`e=$(LC_ALL=C; export LC_ALL; { if [ $k = gzip ]; then head -c "$b" | gzip -dc; else head -c "$b"; fi >"$t"; } 2>&1); ` +
	`[ "$(wc -c 2>/dev/null <"$t")" -eq "$s" ] 2>/dev/null || { z; f write "$(df -Pk "$c" 2>/dev/null | tail -n 1)" : "$e"; }; ` +
	`e=$(LC_ALL=C; export LC_ALL; { chmod 700 "$t" && mv -f "$t" "$c/$1"; } 2>&1) || f folder "$e"; ` +
	`trap - 0 1 2 13 15; }; ` +
	// Empty files are what a crash leaves of a fresh one.
	`for p in @FILES@; do [ -x "$c/$p" ] && [ -s "$c/$p" ] || { o=$(umask); g "$p"; umask "$o"; }; ` +
	`[ -x "$c/$p" ] || f noexec "$c"; done; ` +
	`echo "$n" exec "$c"; exec @COMMAND@`
