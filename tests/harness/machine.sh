# The three layers of a test machine, each run by the one before it:
#   outer      in the caller's namespaces; removes the machine's directory when everything in it has ended
#   cgroups    sees the whole cgroup tree; removes the machine's part of it
#   init       process 1 of the machine, which lives for as long as its standard input is open
# MACHINE_NAME, MACHINE_BASE, MACHINE_RUNTIME, MACHINE_MANAGER, MACHINE_ROOT and MACHINE_BINDS say what is wanted.
set -eu

# Whatever is there goes first: the kernel refuses the same file system twice in one place.
mount_cgroup2() {
	! mountpoint -q /sys/fs/cgroup || umount -R /sys/fs/cgroup
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
}

outer() {
	code=0
	unshare --mount --propagation private -- sh "$0" cgroups || code=$?
	rm -rf -- "$MACHINE_BASE"
	exit $code
}

cgroups() {
	mount_cgroup2
	cgroup=/sys/fs/cgroup/$MACHINE_NAME
	session=$cgroup/user.slice/user-0.slice
	mkdir -p "$cgroup/init.scope" "$cgroup/system.slice/systemd-journald.service" \
		"$session/user@0.service" "$session/session-1.scope"
	code=0
	# The new cgroup namespace has its root where the process is; only then may that process go on to a leaf.
	CGROUP=$cgroup SCRIPT=$0 sh -ec 'echo 0 >"$CGROUP/cgroup.procs"; exec unshare --cgroup -- sh -ec "
		echo 0 >\"\$CGROUP/init.scope/cgroup.procs\"
		exec unshare --mount --pid --fork --kill-child -- sh \"\$SCRIPT\" init"' || code=$?
	find "$cgroup" -depth -type d -exec rmdir {} +
	exit $code
}

# An overlay, so that a tree serves many machines at once and stays as it was.
enter_root() {
	mount -t tmpfs tmpfs /mnt
	mkdir /mnt/upper /mnt/work /mnt/root
	mount -t overlay -o "lowerdir=$MACHINE_ROOT,upperdir=/mnt/upper,workdir=/mnt/work" overlay /mnt/root
	mount --rbind /dev /mnt/root/dev
	mount --rbind /sys /mnt/root/sys
	mount --bind /proc /mnt/root/proc
	for path in $MACHINE_BINDS; do
		if [ -d "$path" ]; then
			mkdir -p "/mnt/root$path"
		else
			mkdir -p "/mnt/root${path%/*}"
			[ -e "/mnt/root$path" ] || : >"/mnt/root$path"
		fi
		mount --bind "$path" "/mnt/root$path"
	done
	cd /mnt/root
	pivot_root . .
	umount -l .
	cd /
}

# Every controller that the machine was given is handed down to its user manager, as in a booted system.
delegate_controllers() {
	for directory in . user.slice user.slice/user-0.slice; do
		for controller in $(cat "/sys/fs/cgroup/$directory/cgroup.controllers"); do
			echo "+$controller" >"/sys/fs/cgroup/$directory/cgroup.subtree_control" || :
		done
	done
}

identify() {
	[ ! -s /etc/machine-id ] || return 0
	tr -d - </proc/sys/kernel/random/uuid >/run/machine-id
	[ -e /etc/machine-id ] || : >/etc/machine-id
	mount --bind /run/machine-id /etc/machine-id
}

in_cgroup() {
	cgroup=$1
	shift
	(
		echo 0 >"/sys/fs/cgroup/$cgroup/cgroup.procs"
		unset CGROUP SCRIPT MACHINE_NAME MACHINE_BASE MACHINE_RUNTIME MACHINE_MANAGER MACHINE_ROOT MACHINE_BINDS
		exec "$@" </dev/null
	) &
}

init() {
	# /proc is the caller's still, and so is the number in it.
	read -r pid _ </proc/self/stat
	[ -z "$MACHINE_ROOT" ] || enter_root
	mount -t proc proc /proc
	mount_cgroup2
	mount -t tmpfs -o mode=755 tmpfs /run
	mkdir -p "${MACHINE_RUNTIME%/*}"
	mkdir -m 700 "$MACHINE_RUNTIME"
	identify
	exec 3<&0
	if [ "$MACHINE_MANAGER" = yes ]; then
		delegate_controllers
		# Storage, and no limit; the kernel's own log and audit stay with the host.
		mkdir -p /run/systemd/system /run/systemd/journald.conf.d
		printf '[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\nReadKMsg=no\nAudit=\nForwardToWall=no\n' \
			>/run/systemd/journald.conf.d/machine.conf
		in_cgroup system.slice/systemd-journald.service /usr/lib/systemd/systemd-journald
		read -r _ <&3
		in_cgroup user.slice/user-0.slice/user@0.service /usr/lib/systemd/systemd --user --log-target=journal
	fi
	echo "$pid"
	exec >&2
	# "wait" reaps whatever was left to process 1 until "cat" sees the end of the input.
	cat <&3 >/dev/null &
	wait $!
}

"$1"
