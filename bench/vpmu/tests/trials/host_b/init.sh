#!/bin/busybox sh
# The first program in the machine: loads KVM, runs the commands and sends what they left, as /commands has it.

/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
export PATH=/bin HOME=/ TERM=dumb NO_COLOR=1
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tracefs tracefs /sys/kernel/tracing
exec 3<>/dev/ttyS1
stty 115200 raw -echo <&3

# A sign of life on the console every five seconds.
beat() { while sleep 5; do echo "# host B is up $(cut -d' ' -f1 /proc/uptime) s"; done; }
beat >/dev/ttyS0 &

give_up() {
	echo "host B cannot be set up: $1" >/dev/ttyS0
	poweroff -f
	exit 1
}

# Under the instruction clock two equal boots hang in the same place: each further boot is some milliseconds later.
boot() {
	turn=0
	while [ $turn -lt $(($1 * 997)) ]; do turn=$((turn + 1)); done
}

load() {
	for module; do insmod "/modules/$module.ko" 2>/run/why || give_up "$(cat /run/why)"; done
	[ -c /dev/kvm ] || give_up 'the modules are in, but there is no /dev/kvm'
}

run() {
	: >/run/stdout
	: >/run/stderr
	# A machine that is stopped leaves the output of its last command there.
	tail -f -n +1 /run/stdout /run/stderr >/dev/ttyS0 2>/dev/null &
	shown=$!
	"$@" </dev/null >/run/stdout 2>/run/stderr
	status=$?
	kill $shown
	wait $shown 2>/dev/null
	echo "$status $(wc -c </run/stdout) $(wc -c </run/stderr)" >&3
	cat /run/stdout /run/stderr >&3
	# Waits until the port has sent it all: the next command may be the machine's end.
	stty -echo <&3
}

cd /run || give_up 'it has no /run'
. /commands
echo end >&3
stty -echo <&3
poweroff -f
