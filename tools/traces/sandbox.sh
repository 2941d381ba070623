# Runs a command without a network in a separate root folder, so that it cannot change files of this machine: the system
# and the folders READ are bound read-only; /tmp and the notebook's folder (/content with "colab", otherwise /started)
# are empty folders in memory.
#   unshare --user --map-root-user --mount --net sh sandbox.sh ROOT colab|local READ:READ:… COMMAND…
set -e
root=$1 kind=$2 read=$3
shift 3
mount -t tmpfs tmpfs "$root"
bind() {
  mkdir -p "$root$1"
  mount --rbind "$1" "$root$1"
  mount -o remount,bind,ro "$root$1" 2>/dev/null || mount -o remount,bind,ro,nosuid,nodev "$root$1" 2>/dev/null || true
}
for folder in /usr /etc /bin /sbin /lib /lib64 /lib32; do
  if [ -L "$folder" ]; then cp -P "$folder" "$root/"; elif [ -d "$folder" ]; then bind "$folder"; fi
done
mkdir -p "$root/dev" "$root/tmp" "$root/proc"
for device in null zero random urandom; do
  : > "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mount --rbind /proc "$root/proc"
IFS=:
for folder in $read; do bind "$folder"; done
unset IFS
: > "$root/landfall-traces-sandbox"  # runner.py runs nowhere else
if [ "$kind" = colab ]; then mkdir -p "$root/content"; else mkdir -p "$root/started"; fi
exec chroot "$root" "$@"
