# A Debian that boots, in namespaces and a cgroup of its own; its disk outlives each boot and ends with this.
#   outer   removes what is left of its cgroup
#   inner   boots it once for each line "boot" that it reads
# BOOTED_NAME, BOOTED_ROOT, BOOTED_DISK and BOOTED_BINDS say what is wanted.
set -eu

outer() {
	code=0
	! mountpoint -q /sys/fs/cgroup || umount -R /sys/fs/cgroup
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	cgroup=/sys/fs/cgroup/$BOOTED_NAME
	mkdir "$cgroup"
	SCRIPT=$0 CGROUP=$cgroup sh -ec 'echo 0 >"$CGROUP/cgroup.procs"
		exec unshare --pid --fork --kill-child --mount-proc -- sh "$SCRIPT" inner' || code=$?
	find "$cgroup" -depth -type d -exec rmdir {} +
	exit $code
}

inner() {
	mount -t tmpfs -o mode=755 tmpfs /run
	mkdir -p "$BOOTED_DISK/upper" "$BOOTED_DISK/work" "$BOOTED_DISK/root"
	mount -t overlay -o "lowerdir=$BOOTED_ROOT,upperdir=$BOOTED_DISK/upper,workdir=$BOOTED_DISK/work" \
		overlay "$BOOTED_DISK/root"
	while read -r order && [ "$order" = boot ]; do
		code=0
		# shellcheck disable=SC2086  # one word for each of them
		systemd-nspawn --boot --keep-unit --register=no --quiet --console=pipe --machine="$BOOTED_NAME" \
			--directory="$BOOTED_DISK/root" $BOOTED_BINDS </dev/null >&2 || code=$?
		echo "$code"
	done
}

"$1"
